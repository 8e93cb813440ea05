"""Targets: rows that no scoring model was fitted on and whose loss the selected text should lower; their classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.records import Example
from endtask.selectors.influence.config import InfluenceConfig
from endtask.task import Task
from endtask.task.split import carve

Rows = tuple[Example, ...]
EVERY_SCORE = "every score"


def folds_of(task: Task, settings: InfluenceConfig, seed: int) -> list[Task]:
    """Tasks whose train rows a scoring model is fitted on and whose dev rows are its targets.

    Halves of train are cut by group, as splits are: variants of a sentence are never on both sides.
    """
    if settings.targets == "dev":
        parts = [(task.train, task.dev)]
    else:
        first, second = carve(task.train, 0.5, seed, salt="influence")
        if not second:
            raise InputError(
                f"the {len(task.train)} train rows cannot be cut into two halves",
                key="select.targets",
                hint="use targets: dev",
            )
        parts = [(tuple(first), tuple(second)), (tuple(second), tuple(first))]
    most = settings.recipe_values.most_targets
    each = None if most is None else max(1, most // len(parts))
    return [replace(task, splits={"train": fit, "dev": draw_targets(rows, each, seed)}) for fit, rows in parts]


def draw_targets(rows: Rows, most: int | None, seed: int) -> Rows:
    """Return all rows, or a sample by hashed ids, in their order: proportional to the classes, at least one of each.

    Rows without a single class are sampled together.
    """
    if most is None or len(rows) <= most:
        return rows
    from endtask.selectors.hashing import draws  # numba: a machine that only fits and scores may lack it

    numbers = draws([row.id for row in rows], seed, "influence targets")
    names = [row.label if isinstance(row.label, str) else "" for row in rows]
    _, classes, counts = np.unique(names, return_inverse=True, return_counts=True)
    drawn = np.argsort(numbers, kind="stable")
    by_class = drawn[np.argsort(classes[drawn], kind="stable")]
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    # The first of every class, then evenly from all: the second of ten rows comes before the third of fifteen.
    urgency = np.where(within == 0, -1.0, within / np.repeat(counts, counts))
    chosen = by_class[np.lexsort((numbers[by_class], urgency))[: max(most, len(counts))]]
    return tuple(rows[index] for index in np.sort(chosen).tolist())


@dataclass(frozen=True)
class Column:
    """The target rows whose mean gradient is a column of the scores."""

    examples: tuple[Example, ...]

    @property
    def name(self) -> str:
        """The row and its class as text, or the first row of several."""
        first = self.examples[0]
        more = f" and {len(self.examples) - 1} more" if len(self.examples) > 1 else ""
        return f"{first.id}{more} ({_answer(first)})"


def _answer(example: Example) -> str:
    if isinstance(example.label, float):
        return f"score {example.label:g}"
    kind = "class" if isinstance(example.label, str) else "labels" if example.tokens is None else "tags"
    return f"{kind} {', '.join(classes_of(example)) or 'none'}"


def columns_of(parts: list[Task], target_batch: int) -> list[Column]:
    """Return the columns in the scorer's order: fold after fold, in the order of the rows."""
    return [
        Column(part.dev[first : first + target_batch])
        for part in parts
        for first in range(0, len(part.dev), target_batch)
    ]


def class_names(task: Task) -> tuple[str, ...]:
    """Return the classes, labels or tags over which target scores are averaged; regression has a single mean."""
    return task.labels or (EVERY_SCORE,)


def classes_of(example: Example) -> tuple[str, ...]:
    """Return the classes of a row: its class, its labels, or the tags of its words.

    >>> classes_of(Example("1", "a b c", ("O", "B", "O"), tokens=("a", "b", "c")))
    ('B', 'O')
    """
    if isinstance(example.label, str):
        return (example.label,)
    return tuple(sorted(set(example.label))) if isinstance(example.label, tuple) else (EVERY_SCORE,)


def memberships(examples: Sequence[Example], names: Sequence[str]) -> NDArray[np.int64]:
    """Return 1 where a row belongs to a class, else 0: (rows, classes); unknown names are ignored."""
    return np.asarray([[name in found for name in names] for found in map(classes_of, examples)], dtype=np.int64)


def labels_with_targets(columns: list[Column], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the classes that have targets; nothing can be selected for the others."""
    found = {name for column in columns for example in column.examples for name in classes_of(example)}
    return tuple(label for label in labels if label in found)


def class_shares(columns: list[Column], labels: tuple[str, ...]) -> NDArray[np.float32]:
    """Return the share of each column in the mean over a class's targets: (columns, classes)."""
    counts = np.stack([memberships(column.examples, labels).sum(axis=0) for column in columns])
    shares: NDArray[np.float32] = (counts / np.maximum(counts.sum(axis=0), 1)).astype(np.float32)
    return shares
