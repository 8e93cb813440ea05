"""What a column of scores stands for: a target, or a mini-batch of targets, of one fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.records import Example
from endtask.task import Task


@dataclass(frozen=True)
class Column:
    """The target rows whose mean gradient is one column."""

    examples: tuple[Example, ...]

    @property
    def name(self) -> str:
        """For people: the row and its class, or the first row of several."""
        first = self.examples[0]
        more = f" and {len(self.examples) - 1} more" if len(self.examples) > 1 else ""
        return f"{first.id}{more} (class {first.label})"


def columns_of(parts: list[Task], target_batch: int) -> list[Column]:
    """The columns in the order of the scorer's: fold after fold, in the order of the rows."""
    return [
        Column(part.dev[first : first + target_batch])
        for part in parts
        for first in range(0, len(part.dev), target_batch)
    ]


def judged_labels(columns: list[Column], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The classes of which there are targets: of the others nobody can tell what would help them."""
    found = {str(example.label) for column in columns for example in column.examples}
    return tuple(label for label in labels if label in found)


def class_shares(columns: list[Column], labels: tuple[str, ...]) -> NDArray[np.float32]:
    """The share of each column in the mean over a class's targets: (columns, classes)."""
    number = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(columns), len(labels)))
    for place, column in enumerate(columns):
        for example in column.examples:
            counts[place, number[str(example.label)]] += 1
    shares: NDArray[np.float32] = (counts / np.maximum(counts.sum(axis=0), 1)).astype(np.float32)
    return shares
