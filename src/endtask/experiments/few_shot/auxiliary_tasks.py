"""Auxiliary tasks, trained on as many labels in turn with the end task, on a shared encoder."""

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
    """The rows that an auxiliary task trains on: those of its train split that it would draw as an end task.

    None shares a group or a text with a row of the end task that is scored or chooses the epoch: what is known about a
    text helps with any question about it.
    """

    def __init__(self, name: str, task: Task, rows: TaskRows, draws: Sequence[Draw], spec: FewShotSpec) -> None:
        self.name, self.task = name, task
        self._rows, self._draws, self._spec = rows, draws, spec
        # Folds are the end task's: this task is not scored, and its dev and test rows stay unseen.
        changes = {"folds": None, "samples": len(draws), "held_out": FewShotSpec().held_out}
        self._own_draws = make_draws(TaskRows.of(task), spec.model_copy(update=changes))

    def train(self, labels: int, draw: int) -> Indices:
        """Return so many train rows, or fewer if there are no more."""
        end = self._draws[draw]
        scored = np.concatenate([end.test, held_out_of(end, labels, self._spec)])
        excluded = {key for row in scored for key in self._scored_keys[row]}
        free = [row for row in self._own_draws[draw].order.tolist() if excluded.isdisjoint(self._train_keys[row])]
        return np.asarray(free[:labels], dtype=np.int64)

    @cached_property
    def _train_keys(self) -> list[set[TextKey]]:
        # Train comes first among all rows of a task.
        return [train_keys(example) | _group_key(example) for example in self.task.train]

    @cached_property
    def _scored_keys(self) -> list[set[TextKey]]:
        return [eval_keys(example) | _group_key(example) for example in self._rows.examples]

    def fewest(self, labels: int) -> int:
        """Return how many rows the draw with the fewest of them has, up to `labels`."""
        return min(len(self.train(labels, draw)) for draw in range(len(self._draws)))


def _group_key(example: Example) -> set[TextKey]:
    return set() if example.group is None else {("group", frozenset({example.group}))}


def auxiliary_rows(task: Task, rows: TaskRows, draws: Sequence[Draw], spec: FewShotSpec) -> list[AuxiliaryRows]:
    """Return the rows of each auxiliary task of an end task."""
    return [AuxiliaryRows(name, each, rows, draws, spec) for name, each in task.auxiliary.items()]


def labels_for_all(labels: tuple[int, ...], spec: FewShotSpec, tasks: Sequence[AuxiliaryRows]) -> tuple[int, ...]:
    """Return the numbers of labels for which every task has rows; raise if they were requested, or none is left."""
    fits = labels
    for task in tasks:
        enough = tuple(number for number in fits if task.fewest(number) >= number)
        if not enough or (spec.labels is not None and enough != fits):
            number = next(number for number in fits if number not in enough)
            there = f"the auxiliary task {task.name!r} has {task.fewest(number)} rows to draw from"
            raise InputError(f"--tasks all --labels {number}: {there}", hint="fewer --labels, or --tasks main")
        fits = enough
    return fits


class AuxiliaryTask:
    """An auxiliary task with its texts tokenised; its head is trained in turn with that of the end task."""

    def __init__(self, rows: AuxiliaryRows, tokenizer: Path, max_length: int, spec: FewShotSpec, folder: Path) -> None:
        self.name, self.task, self.head = rows.name, rows.task, auxiliary_head(rows.name)
        self._rows, self._spec = rows, spec
        train = TaskRows(self.task.train, {"train": np.arange(len(self.task.train))})
        self._texts = pack_rows(train, tokenizer, max_length, folder)

    def objective(self, network: Network, trial: FewShotTrial) -> TaskObjective:
        """Return its objective in a trial."""
        rows, batches = self._rows.train(trial.labels, trial.draw), batches_of(self._spec, trial, self.name)
        stream = SelectedTexts(self.name, self._texts, network, rows, batches, self._spec.batch_size)
        return task_objective(self.task, self.name, stream, head=self.head)
