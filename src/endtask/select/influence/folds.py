"""Whose loss is to fall, and on which rows the model is fitted that says so: never on the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from endtask.errors import InputError
from endtask.records import Example
from endtask.select.draws import draws
from endtask.settings.influence import InfluenceSettings
from endtask.task import Task
from endtask.task.split import carve

Rows = tuple[Example, ...]


def folds_of(task: Task, settings: InfluenceSettings, seed: int) -> list[Task]:
    """Tasks whose train rows a scoring model is fitted on and whose dev rows are its targets.

    Halves of train are cut by group, as splits are: variants of one sentence never stand on both sides.
    """
    if settings.targets == "dev":
        parts = [(task.train, task.dev)]
    else:
        one, other = carve(task.train, 0.5, seed, salt="influence")
        if not other:
            raise InputError(
                f"the {len(task.train)} train rows cannot be cut into two halves",
                key="select.influence.targets",
                hint="use targets: dev",
            )
        parts = [(tuple(one), tuple(other)), (tuple(other), tuple(one))]
    most = None if settings.most_targets is None else max(1, settings.most_targets // len(parts))
    return [replace(task, splits={"train": fit, "dev": _some(targets, most, seed)}) for fit, targets in parts]


def _some(rows: Rows, most: int | None, seed: int) -> Rows:
    """All rows, or a draw from them by their ids, in their own order: of every class its share, and at least one.

    Rows that do not have one class each are drawn from as a whole.
    """
    if most is None or len(rows) <= most:
        return rows
    numbers = draws([row.id for row in rows], seed, "influence targets")
    names = [row.label if isinstance(row.label, str) else "" for row in rows]
    _, classes, counts = np.unique(names, return_inverse=True, return_counts=True)
    drawn = np.argsort(numbers, kind="stable")
    by_class = drawn[np.argsort(classes[drawn], kind="stable")]
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # The first of every class, then evenly from all: the second of ten rows comes before the third of fifteen.
    urgency = np.where(within == 0, -1.0, within / np.repeat(counts, counts))
    chosen = by_class[np.lexsort((numbers[by_class], urgency))[: max(most, len(counts))]]
    return tuple(rows[place] for place in np.sort(chosen).tolist())
