"""Auxiliary tasks that learn from as many labels beside the end task, on the encoder that all share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from endtask.encoders.auxiliary_heads import auxiliary_head
from endtask.encoders.network import Network
from endtask.errors import InputError
from endtask.few_examples.bench import batches_of
from endtask.few_examples.chosen_texts import ChosenTexts
from endtask.few_examples.draws import Draw, Numbers, Rows, held_out_of, make_draws
from endtask.few_examples.plan import Key, Plan
from endtask.few_examples.units import packed_rows
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.task_objective import task_objective
from endtask.records import Example
from endtask.task import Task
from endtask.task.leaks import TextKey, eval_keys, train_keys


class FurtherRows:
    """The rows that a auxiliary task learns from: those of its train split that it would draw as an end task.

    None shares a group or a text with a row of the end task that is scored or chooses the epoch: what is known about a
    text helps with any question about it.
    """

    def __init__(self, name: str, task: Task, rows: Rows, draws: Sequence[Draw], plan: Plan) -> None:
        self.name, self.task = name, task
        self._rows, self._draws, self._plan = rows, draws, plan
        # Folds are the end task's: this one is not scored, and its own dev and test rows stay unseen.
        usual = {"folds": None, "samples": len(draws), "held_out": Plan().held_out}
        self._own = make_draws(Rows.of(task), plan.model_copy(update=usual))

    def learned(self, labels: int, draw: int) -> Numbers:
        """So many train rows, or fewer where there are no more."""
        end = self._draws[draw]
        elsewhere = np.concatenate([end.test, held_out_of(end, labels, self._plan)])
        asked = {sign for row in elsewhere for sign in self._asked[row]}
        free = [row for row in self._own[draw].order.tolist() if asked.isdisjoint(self._gives_away[row])]
        return np.asarray(free[:labels], dtype=np.int64)

    @cached_property
    def _gives_away(self) -> list[set[TextKey]]:
        # Train stands first among all rows of a task.
        return [train_keys(example) | _group_of(example) for example in self.task.train]

    @cached_property
    def _asked(self) -> list[set[TextKey]]:
        return [eval_keys(example) | _group_of(example) for example in self._rows.examples]

    def fewest(self, labels: int) -> int:
        """How many rows the draw with the fewest of them has, up to `labels`."""
        return min(len(self.learned(labels, draw)) for draw in range(len(self._draws)))


def _group_of(example: Example) -> set[TextKey]:
    return set() if example.group is None else {("group", frozenset({example.group}))}


def further_rows(task: Task, rows: Rows, draws: Sequence[Draw], plan: Plan) -> list[FurtherRows]:
    """The rows of each auxiliary task of an end task."""
    return [FurtherRows(name, one, rows, draws, plan) for name, one in task.auxiliary.items()]


def fitting_beside(labels: tuple[int, ...], plan: Plan, auxiliary: Sequence[FurtherRows]) -> tuple[int, ...]:
    """Of numbers of labels those for which each auxiliary task has rows; refused if they were asked for, or all are."""
    fits = labels
    for one in auxiliary:
        enough = tuple(number for number in fits if one.fewest(number) >= number)
        if not enough or (plan.labels is not None and enough != fits):
            number = next(number for number in fits if number not in enough)
            there = f"the auxiliary task {one.name!r} has {one.fewest(number)} rows to draw from"
            raise InputError(f"--tasks all --labels {number}: {there}", hint="fewer --labels, or --tasks main")
        fits = enough
    return fits


class Beside:
    """A auxiliary task with its texts tokenised, whose head learns in turn with that of the end task."""

    def __init__(self, rows: FurtherRows, tokenizer: Path, max_length: int, plan: Plan, folder: Path) -> None:
        self.name, self.task, self.head = rows.name, rows.task, auxiliary_head(rows.name)
        self._rows, self._plan = rows, plan
        train = Rows(self.task.train, {"train": np.arange(len(self.task.train))})
        self._texts = packed_rows(train, tokenizer, max_length, folder)

    def objective(self, network: Network, key: Key) -> TaskObjective:
        """What it learns in a run."""
        rows, batches = self._rows.learned(key.labels, key.draw), batches_of(self._plan, key, self.name)
        stream = ChosenTexts(self.name, self._texts, network, rows, batches, self._plan.batch_size)
        return task_objective(self.task, self.name, stream, head=self.head)
