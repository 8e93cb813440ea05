"""Auxiliary tasks, trained on as many labels as the end task, alternating with it on a shared encoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from endtask.encoders.network import Network, auxiliary_head
from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.label_draws import Draw, Indices, TaskRows, held_out_of, make_draws
from endtask.experiments.few_shot.trial_rows import SelectedTexts, batches_of, pack_rows
from endtask.objectives.task_losses import TaskObjective, task_objective
from endtask.records import Example
from endtask.task import Task
from endtask.task.leaks import TextKey, eval_keys, train_keys


class AuxiliaryRows:
    """The rows that an auxiliary task trains on, drawn from its train split as for an end task.

    None of them shares a group or a text with a row of the end task that is scored or chooses the epoch, because a
    label of one task may reveal a label of the other.
    """

    def __init__(self, name: str, task: Task, rows: TaskRows, draws: Sequence[Draw], spec: FewShotSpec) -> None:
        self.name, self.task = name, task
        self._rows, self._draws, self._spec = rows, draws, spec
        # Only the end task has folds: an auxiliary task is not scored, and its dev and test rows are not used.
        changes = {"folds": None, "samples": len(draws), "held_out": FewShotSpec().held_out}
        self._auxiliary_draws = make_draws(TaskRows.of(task), spec.model_copy(update=changes))

    def train(self, labels: int, draw: int) -> Indices:
        """Return the train rows for a number of labels, or fewer if there are too few."""
        end_task_draw = self._draws[draw]
        scored = np.concatenate([end_task_draw.test, held_out_of(end_task_draw, labels, self._spec)])
        excluded = {key for row in scored for key in self._scored_keys[row]}
        order = self._auxiliary_draws[draw].order.tolist()
        rows = [row for row in order if excluded.isdisjoint(self._train_keys[row])]
        return np.asarray(rows[:labels], dtype=np.int64)

    @cached_property
    def _train_keys(self) -> list[set[TextKey]]:
        # The rows of train are the first of a task, so a draw's row is its index in train.
        return [train_keys(example) | _group_key(example) for example in self.task.train]

    @cached_property
    def _scored_keys(self) -> list[set[TextKey]]:
        return [eval_keys(example) | _group_key(example) for example in self._rows.examples]

    def fewest(self, labels: int) -> int:
        """Return the smallest number of rows in any draw, at most `labels`."""
        return min(len(self.train(labels, draw)) for draw in range(len(self._draws)))


def _group_key(example: Example) -> set[TextKey]:
    return set() if example.group is None else {("group", frozenset({example.group}))}


def auxiliary_rows(task: Task, rows: TaskRows, draws: Sequence[Draw], spec: FewShotSpec) -> list[AuxiliaryRows]:
    """Return the rows of each auxiliary task of an end task."""
    return [AuxiliaryRows(name, auxiliary, rows, draws, spec) for name, auxiliary in task.auxiliary.items()]


def labels_for_all(labels: tuple[int, ...], spec: FewShotSpec, tasks: Sequence[AuxiliaryRows]) -> tuple[int, ...]:
    """Return the numbers of labels for which every task has enough rows.

    Raise `InputError` if a requested number has too few, or if all have.
    """
    fitting = labels
    for task in tasks:
        enough = tuple(number for number in fitting if task.fewest(number) >= number)
        if not enough or (spec.labels is not None and enough != fitting):
            number = next(number for number in fitting if number not in enough)
            available = f"the auxiliary task {task.name!r} has {task.fewest(number)} rows to draw from"
            raise InputError(f"--tasks all --labels {number}: {available}", hint="fewer --labels, or --tasks main")
        fitting = enough
    return fitting


class AuxiliaryTask:
    """An auxiliary task with its tokenised texts and its head."""

    def __init__(self, rows: AuxiliaryRows, tokenizer: Path, max_length: int, spec: FewShotSpec, folder: Path) -> None:
        self.name, self.task, self.head = rows.name, rows.task, auxiliary_head(rows.name)
        self._rows, self._spec = rows, spec
        train = TaskRows(self.task.train, {"train": np.arange(len(self.task.train))})
        self._texts = pack_rows(train, tokenizer, max_length, folder)

    def objective(self, network: Network, trial: FewShotTrial) -> TaskObjective:
        """Return the task's objective in a trial."""
        rows, batches = self._rows.train(trial.labels, trial.draw), batches_of(self._spec, trial, self.name)
        stream = SelectedTexts(self.name, self._texts, network, rows, batches, self._spec.batch_size)
        return task_objective(self.task, self.name, stream, head=self.head)
