"""Which rows are learned from, held out and scored: by groups, so that no text stands on two sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.few_examples.plan import USUAL_LABELS, Plan
from endtask.records import Example
from endtask.seeds import generator
from endtask.task import Task
from endtask.task.split import group_numbers

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Draw:
    """Rows in the order in which they are taken, whole groups behind each other; `groups` names the group of each.

    The first rows are learned from, the last choose the epoch, so that more labels are the fewer ones and others.
    """

    order: Numbers
    groups: Numbers
    test: Numbers
    dev: Numbers | None = None

    def learned(self, labels: int) -> Numbers:
        """The rows to learn from."""
        return self.order[:labels]

    def held_out(self, labels: int, rows: int) -> Numbers:
        """At most `rows` rows that choose the epoch, none of a group that is learned from; or all of dev.

        >>> draw = Draw(np.arange(6), np.array([0, 0, 1, 1, 2, 3]), np.arange(0))
        >>> draw.held_out(3, 3).tolist()
        [4, 5]
        """
        if self.dev is not None:
            return self.dev
        known = set(self.groups[:labels].tolist())
        free = self.order[[group not in known for group in self.groups.tolist()]]
        return free[-rows:] if len(free) else free


def held_out_of(draw: Draw, labels: int, plan: Plan) -> Numbers:
    """The rows of a draw that choose the epoch beside so many labels."""
    return draw.held_out(labels, 0 if plan.held_out == "dev" else plan.held_out_rows(labels))


@dataclass(frozen=True)
class Rows:
    """All rows of a task end to end, and where each split stands among them."""

    examples: tuple[Example, ...]
    splits: dict[str, Numbers]

    @classmethod
    def of(cls, task: Task) -> Rows:
        """The rows of train, dev and test."""
        ends = np.cumsum([0, *(len(examples) for examples in task.splits.values())])
        places = {split: np.arange(ends[n], ends[n + 1]) for n, split in enumerate(task.splits)}
        return cls(tuple(example for examples in task.splits.values() for example in examples), places)

    @cached_property
    def groups(self) -> Numbers:
        """The number of each row's group: rows with one value in the group column, or with the same text."""
        return group_numbers(self.examples)

    @property
    def scored_split(self) -> str:
        """The split that draws from train are scored on."""
        return "test" if "test" in self.splits else "dev"


def make_draws(rows: Rows, plan: Plan) -> list[Draw]:
    """The draws of a plan; they depend on its seed and on the rows alone, so that runs can be compared in pairs."""
    if plan.folds is not None:
        return _folds(rows, plan.folds, plan.seed)
    scored = rows.scored_split
    if plan.held_out == "dev" and scored == "dev":
        message = "the task has no test split, so dev is scored and cannot choose the epoch"
        raise InputError(f"--held-out dev: {message}", hint="give a share, such as 0.25")
    dev = rows.splits["dev"] if plan.held_out == "dev" else None
    elsewhere = np.concatenate([rows.splits[scored], *([] if dev is None else [dev])])
    train = rows.splits["train"]
    pool = train[~np.isin(rows.groups[train], rows.groups[elsewhere])]
    if dev is not None:
        dev = dev[~np.isin(rows.groups[dev], rows.groups[rows.splits[scored]])]
    return [
        _draw(pool, rows.groups, rows.splits[scored], generator(plan.seed, "few-examples", number), dev)
        for number in range(plan.samples)
    ]


def _folds(rows: Rows, folds: int, seed: int) -> list[Draw]:
    """Every row is scored once; a group goes where fewest rows are, so that folds are about equal."""
    numbers, sizes = np.unique(rows.groups, return_counts=True)  # groups are numbered from 0 without gaps
    if len(numbers) < folds:
        raise InputError(f"--folds {folds}: the task has only {len(numbers)} groups of rows")
    filled, fold_of = np.zeros(folds, dtype=np.int64), np.empty(len(numbers), dtype=np.int64)
    for group in generator(seed, "few-examples", "folds").permutation(numbers):
        fold_of[group] = filled.argmin()
        filled[fold_of[group]] += sizes[group]
    fold, everything = fold_of[rows.groups], np.arange(len(rows.examples))
    return [
        _draw(everything[fold != n], rows.groups, everything[fold == n], generator(seed, "few-examples", n), None)
        for n in range(folds)
    ]


def _draw(pool: Numbers, groups: Numbers, test: Numbers, random: np.random.Generator, dev: Numbers | None) -> Draw:
    order, numbers = _by_group(pool, groups, random)
    return Draw(order, numbers, test, dev)


def _by_group(pool: Numbers, groups: Numbers, random: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Rows with groups shuffled as wholes, and the new number of each row's group, by its place."""
    places = np.empty(int(groups.max(initial=0)) + 1, dtype=np.int64)
    present = np.unique(groups[pool])
    places[random.permutation(present)] = np.arange(len(present))
    shuffled = random.permutation(pool)  # rows of a group in any order too
    numbers = places[groups[shuffled]]
    order = np.argsort(numbers, kind="stable")
    return shuffled[order], numbers[order]


def fitting_labels(draws: Sequence[Draw], plan: Plan) -> tuple[int, ...]:
    """The numbers of labels that are asked for; of the usual ones those for which there are enough rows."""
    asked = plan.labels or USUAL_LABELS
    fits = {labels: all(_fits(draw, labels, plan) for draw in draws) for labels in asked}
    chosen = tuple(sorted(labels for labels in asked if fits[labels]))
    if plan.labels is not None and len(chosen) < len(asked):
        _check(min(labels for labels in asked if not fits[labels]), draws, plan)
    if not chosen:
        _check(min(asked), draws, plan)
    return chosen


def _fits(draw: Draw, labels: int, plan: Plan) -> bool:
    if labels > len(draw.order):
        return False
    wanted = 1 if plan.held_out == "dev" else plan.held_out_rows(labels)
    return len(draw.held_out(labels, wanted)) >= wanted


def _check(labels: int, draws: Sequence[Draw], plan: Plan) -> None:
    beside = "" if plan.held_out == "dev" else f" and {plan.held_out_rows(labels)} held-out ones beside them"
    fewest = min(len(draw.order) for draw in draws)
    hint = "fewer --labels" + ("" if plan.folds or plan.held_out == "dev" else ", or --held-out dev")
    raise InputError(f"--labels {labels}{beside}: there are {fewest} rows to draw from", hint=hint)
