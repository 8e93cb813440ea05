"""Draws of rows to train on, hold out and score: by groups, so that no text is on two sides."""

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
"""The name of all random streams of few-shot trials; another name would change every draw."""


@dataclass(frozen=True)
class Draw:
    """Rows in the order in which they are taken, group by group; `groups` has the group of each.

    The first rows are trained on, the last choose the epoch, so that fewer labels are part of more.
    """

    order: Indices
    groups: Indices
    test: Indices
    dev: Indices | None = None

    def train(self, labels: int) -> Indices:
        """Return the rows to train on."""
        return self.order[:labels]

    def held_out(self, labels: int, rows: int) -> Indices:
        """Return at most `rows` rows that choose the epoch, none of a group that is trained on; or all of dev.

        >>> draw = Draw(np.arange(6), np.array([0, 0, 1, 1, 2, 3]), np.arange(0))
        >>> draw.held_out(3, 3).tolist()
        [4, 5]
        """
        if self.dev is not None:
            return self.dev
        used = set(self.groups[:labels].tolist())
        free = self.order[[group not in used for group in self.groups.tolist()]]
        return free[-rows:] if len(free) else free


def held_out_of(draw: Draw, labels: int, spec: FewShotSpec) -> Indices:
    """Return the rows of a draw that choose the epoch next to so many labels."""
    return draw.held_out(labels, 0 if spec.held_out == "dev" else spec.held_out_rows(labels))


@dataclass(frozen=True)
class TaskRows:
    """All rows of a task one after the other, and the indices of each split among them."""

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
        """The number of each row's group: rows with one value in the group column, or with the same text."""
        return group_numbers(self.examples)

    @property
    def scored_split(self) -> str:
        """The split that draws from train are scored on."""
        return "test" if "test" in self.splits else "dev"


def make_draws(rows: TaskRows, spec: FewShotSpec) -> list[Draw]:
    """Return the draws of a spec; they depend only on its seed and on the rows, so trials can be paired."""
    if spec.folds is not None:
        return _folds(rows, spec.folds, spec.seed)
    scored = rows.scored_split
    if spec.held_out == "dev" and scored == "dev":
        message = "the task has no test split, so dev is scored and cannot choose the epoch"
        raise InputError(f"--held-out dev: {message}", hint="give a share, such as 0.25")
    dev = rows.splits["dev"] if spec.held_out == "dev" else None
    elsewhere = np.concatenate([rows.splits[scored], *([] if dev is None else [dev])])
    train = rows.splits["train"]
    pool = train[~np.isin(rows.groups[train], rows.groups[elsewhere])]
    if dev is not None:
        dev = dev[~np.isin(rows.groups[dev], rows.groups[rows.splits[scored]])]
    return [
        _draw(pool, rows.groups, rows.splits[scored], generator(spec.seed, RANDOM_STREAM, number), dev)
        for number in range(spec.samples)
    ]


def _folds(rows: TaskRows, folds: int, seed: int) -> list[Draw]:
    """Return draws that score every row once; each group goes to the smallest fold, so folds are about equal."""
    numbers, sizes = np.unique(rows.groups, return_counts=True)  # groups are numbered from 0 without gaps
    if len(numbers) < folds:
        raise InputError(f"--folds {folds}: the task has only {len(numbers)} groups of rows")
    filled, fold_of = np.zeros(folds, dtype=np.int64), np.empty(len(numbers), dtype=np.int64)
    for group in generator(seed, RANDOM_STREAM, "folds").permutation(numbers):
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    fold, everything = fold_of[rows.groups], np.arange(len(rows.examples))
    return [
        _draw(everything[fold != n], rows.groups, everything[fold == n], generator(seed, RANDOM_STREAM, n), None)
        for n in range(folds)
    ]


def _draw(pool: Indices, groups: Indices, test: Indices, random: np.random.Generator, dev: Indices | None) -> Draw:
    """Return the pool with whole groups shuffled, and the new number of each row's group."""
    new_number = np.empty(int(groups.max(initial=0)) + 1, dtype=np.int64)
    present = np.unique(groups[pool])
    new_number[random.permutation(present)] = np.arange(len(present))
    shuffled = random.permutation(pool)  # rows within a group are shuffled too
    numbers = new_number[groups[shuffled]]
    order = np.argsort(numbers, kind="stable")
    return Draw(shuffled[order], numbers[order], test, dev)


def fitting_labels(draws: Sequence[Draw], spec: FewShotSpec) -> tuple[int, ...]:
    """Return the requested numbers of labels; of the default ones those for which there are enough rows."""
    requested = spec.labels or DEFAULT_LABELS
    fits = {labels: all(_fits(draw, labels, spec) for draw in draws) for labels in requested}
    chosen = tuple(sorted(labels for labels in requested if fits[labels]))
    if spec.labels is not None and len(chosen) < len(requested):
        raise _too_few_rows(min(labels for labels in requested if not fits[labels]), draws, spec)
    if not chosen:
        raise _too_few_rows(min(requested), draws, spec)
    return chosen


def _fits(draw: Draw, labels: int, spec: FewShotSpec) -> bool:
    if labels > len(draw.order):
        return False
    wanted = 1 if spec.held_out == "dev" else spec.held_out_rows(labels)
    return len(draw.held_out(labels, wanted)) >= wanted


def _too_few_rows(labels: int, draws: Sequence[Draw], spec: FewShotSpec) -> InputError:
    more = "" if spec.held_out == "dev" else f" and {spec.held_out_rows(labels)} held-out rows"
    fewest = min(len(draw.order) for draw in draws)
    hint = "fewer --labels" + ("" if spec.folds or spec.held_out == "dev" else ", or --held-out dev")
    return InputError(f"--labels {labels}{more}: there are {fewest} rows to draw from", hint=hint)
