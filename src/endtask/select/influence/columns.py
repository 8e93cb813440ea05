"""What a column of scores stands for: a target, or a mini-batch of targets, of one fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.records import Example
from endtask.task import Task

EVERY_SCORE = "every score"


@dataclass(frozen=True)
class Column:
    """The target rows whose mean gradient is one column."""

    examples: tuple[Example, ...]

    @property
    def name(self) -> str:
        """For people: the row and its class, or the first row of several."""
        first = self.examples[0]
        more = f" and {len(self.examples) - 1} more" if len(self.examples) > 1 else ""
        return f"{first.id}{more} ({_answer(first)})"


def _answer(example: Example) -> str:
    if isinstance(example.label, float):
        return f"score {example.label:g}"
    kind = "class" if isinstance(example.label, str) else "labels" if example.tokens is None else "tags"
    return f"{kind} {', '.join(classes_of(example)) or 'none'}"


def columns_of(parts: list[Task], target_batch: int) -> list[Column]:
    """The columns in the order of the scorer's: fold after fold, in the order of the rows."""
    return [
        Column(part.dev[first : first + target_batch])
        for part in parts
        for first in range(0, len(part.dev), target_batch)
    ]


def class_names(task: Task) -> tuple[str, ...]:
    """The classes, labels or tags by which means over targets are taken; scores have one mean over all."""
    return task.labels or (EVERY_SCORE,)


def classes_of(example: Example) -> tuple[str, ...]:
    """Those that a row belongs to: its class, its labels, the tags that its words have.

    >>> classes_of(Example("1", "a b c", ("O", "B", "O"), tokens=("a", "b", "c")))
    ('B', 'O')
    """
    if isinstance(example.label, str):
        return (example.label,)
    return tuple(sorted(set(example.label))) if isinstance(example.label, tuple) else (EVERY_SCORE,)


def memberships(examples: Sequence[Example], names: Sequence[str]) -> NDArray[np.int64]:
    """1 where a row belongs to a class, else 0: (rows, classes); names that no model knows count nowhere."""
    return np.asarray([[name in found for name in names] for found in map(classes_of, examples)], dtype=np.int64)


def judged_labels(columns: list[Column], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of which there are targets: of the others nobody can tell what would help them."""
    found = {name for column in columns for example in column.examples for name in classes_of(example)}
    return tuple(label for label in labels if label in found)


def class_shares(columns: list[Column], labels: tuple[str, ...]) -> NDArray[np.float32]:
    """The share of each column in the mean over a class's targets: (columns, classes)."""
    counts = np.stack([memberships(column.examples, labels).sum(axis=0) for column in columns])
    shares: NDArray[np.float32] = (counts / np.maximum(counts.sum(axis=0), 1)).astype(np.float32)
    return shares
