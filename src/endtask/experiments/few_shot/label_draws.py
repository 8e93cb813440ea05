"""Draw rows to train on, hold out and score, by groups, so that no text is both trained on and scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot_spec import DEFAULT_LABELS, FewShotSpec
from endtask.records import Example
from endtask.seeds import generator
from endtask.task import Task
from endtask.task.split import group_numbers

Indices = NDArray[np.int64]

RANDOM_STREAM = "few-examples"
"""The name of all random streams of few-shot trials; a change of it changes every draw."""


@dataclass(frozen=True)
class Draw:
    """Rows in the order in which they are drawn, group by group; `groups` has the group of each.

    The first rows are trained on and the last choose the epoch, so that a draw with more labels contains one with
    fewer.
    """

    order: Indices
    groups: Indices
    test: Indices
    dev: Indices | None = None

    def train(self, labels: int) -> Indices:
        """Return the rows to train on."""
        return self.order[:labels]

    def held_out(self, labels: int, rows: int) -> Indices:
        """Return at most `rows` rows that choose the epoch, without groups that are trained on; or all rows of dev.

        >>> draw = Draw(np.arange(6), np.array([0, 0, 1, 1, 2, 3]), np.arange(0))
        >>> draw.held_out(3, 3).tolist()
        [4, 5]
        """
        if self.dev is not None:
            return self.dev
        trained = set(self.groups[:labels].tolist())
        available = self.order[[group not in trained for group in self.groups.tolist()]]
        return available[-rows:] if len(available) else available


def held_out_of(draw: Draw, labels: int, spec: FewShotSpec) -> Indices:
    """Return the rows of a draw that choose the epoch, for a number of labels."""
    return draw.held_out(labels, 0 if spec.held_out == "dev" else spec.held_out_rows(labels))


@dataclass(frozen=True)
class TaskRows:
    """All rows of a task, split after split, and the indices of each split."""

    examples: tuple[Example, ...]
    splits: dict[str, Indices]

    @classmethod
    def of(cls, task: Task) -> TaskRows:
        """Return the rows of train, dev and test."""
        ends = np.cumsum([0, *(len(examples) for examples in task.splits.values())])
        indices = {split: np.arange(ends[n], ends[n + 1]) for n, split in enumerate(task.splits)}
        return cls(tuple(example for examples in task.splits.values() for example in examples), indices)

    @cached_property
    def groups(self) -> Indices:
        """The group of each row: rows with the same value in the group column, or with the same text."""
        return group_numbers(self.examples)

    @property
    def scored_split(self) -> str:
        """The split that draws from train are scored on."""
        return "test" if "test" in self.splits else "dev"


def make_draws(rows: TaskRows, spec: FewShotSpec) -> list[Draw]:
    """Return the draws of a spec, which depend only on its seed and on the rows, so that trials can be paired."""
    if spec.folds is not None:
        return _folds(rows, spec.folds, spec.seed)
    scored = rows.scored_split
    if spec.held_out == "dev" and scored == "dev":
        message = "the task has no test split, so dev is scored and cannot choose the epoch"
        raise InputError(f"--held-out dev: {message}", hint="give a share, such as 0.25")
    dev = rows.splits["dev"] if spec.held_out == "dev" else None
    excluded = np.concatenate([rows.splits[scored], *([] if dev is None else [dev])])
    train = rows.splits["train"]
    pool = train[~np.isin(rows.groups[train], rows.groups[excluded])]
    if dev is not None:
        dev = dev[~np.isin(rows.groups[dev], rows.groups[rows.splits[scored]])]
    return [
        _draw(pool, rows.groups, rows.splits[scored], generator(spec.seed, RANDOM_STREAM, number), dev)
        for number in range(spec.samples)
    ]


def _folds(rows: TaskRows, folds: int, seed: int) -> list[Draw]:
    """Return draws that score every row once; each group is added to the smallest fold, so that folds are similar."""
    numbers, sizes = np.unique(rows.groups, return_counts=True)  # groups are numbered from 0 without gaps
    if len(numbers) < folds:
        raise InputError(f"--folds {folds}: the task has only {len(numbers)} groups of rows")
    fold_sizes, fold_of = np.zeros(folds, dtype=np.int64), np.empty(len(numbers), dtype=np.int64)
    for group in generator(seed, RANDOM_STREAM, "folds").permutation(numbers):
        fold_of[group] = fold_sizes.argmin()
        fold_sizes[fold_of[group]] += sizes[group]
    fold, indices = fold_of[rows.groups], np.arange(len(rows.examples))
    return [
        _draw(indices[fold != n], rows.groups, indices[fold == n], generator(seed, RANDOM_STREAM, n), None)
        for n in range(folds)
    ]


def _draw(pool: Indices, groups: Indices, test: Indices, random: np.random.Generator, dev: Indices | None) -> Draw:
    """Return a draw of the pool in random order, with the rows of a group next to each other."""
    new_number = np.empty(int(groups.max(initial=0)) + 1, dtype=np.int64)
    present = np.unique(groups[pool])
    new_number[random.permutation(present)] = np.arange(len(present))
    shuffled = random.permutation(pool)  # rows within a group are shuffled too
    numbers = new_number[groups[shuffled]]
    order = np.argsort(numbers, kind="stable")
    return Draw(shuffled[order], numbers[order], test, dev)


def fitting_labels(draws: Sequence[Draw], spec: FewShotSpec) -> tuple[int, ...]:
    """Return the requested numbers of labels, or the default numbers with enough rows. Raise for too few rows."""
    requested = spec.labels or DEFAULT_LABELS
    fitting = tuple(sorted(labels for labels in requested if all(_fits(draw, labels, spec) for draw in draws)))
    if not fitting or (spec.labels is not None and len(fitting) < len(requested)):
        raise _too_few_rows(min(labels for labels in requested if labels not in fitting), draws, spec)
    return fitting


def _fits(draw: Draw, labels: int, spec: FewShotSpec) -> bool:
    if labels > len(draw.order):
        return False
    held_out = 1 if spec.held_out == "dev" else spec.held_out_rows(labels)
    return len(draw.held_out(labels, held_out)) >= held_out


def _too_few_rows(labels: int, draws: Sequence[Draw], spec: FewShotSpec) -> InputError:
    held_out = "" if spec.held_out == "dev" else f" and {spec.held_out_rows(labels)} held-out rows"
    fewest = min(len(draw.order) for draw in draws)
    hint = "fewer --labels" + ("" if spec.folds or spec.held_out == "dev" else ", or --held-out dev")
    return InputError(f"--labels {labels}{held_out}: there are {fewest} rows to draw from", hint=hint)
