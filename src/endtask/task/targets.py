"""The right answers of a split as one array, rows first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.registry import task_types
from endtask.task.task import Task

NO_WORD = -1
"""The padding after the last word of a row of tags."""

Answers = NDArray[Any]
"""Class indices (rows,), scores (rows,), 0 or 1 for each label (rows, labels), or tag indices (rows, words of the
longest row) padded with `NO_WORD`."""


def targets(task: Task, split: str) -> Answers:
    """Return the right answers of a split; numbers are indices in `task.all_labels`.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), "a b", ("B", "O")[: n + 1], tokens=("a", "b")[: n + 1]) for n in range(2)]
    >>> splits = {"train": rows, "dev": rows}
    >>> task = Task.from_examples("tiny", splits, task_type="token_classification", test_fraction=0)
    >>> targets(task, "dev").tolist()
    [[0, -1], [0, 1]]
    """
    return numbered([example.label for example in task.splits[split]], task.type, task.all_labels)


def numbered(answers: Sequence[Any], type_name: str, labels: Sequence[str]) -> Answers:
    """Return answers by name (class, score, labels, tags) as one array; an unknown name is a `KeyError`."""
    array: Answers = task_types.get(type_name)().to_array(answers, labels)
    return array


def padded(rows: Sequence[Sequence[int]], width: int | None = None) -> Answers:
    """Return rows of different lengths as one table, padded with `NO_WORD`."""
    longest = max((len(row) for row in rows), default=0) if width is None else width
    table = np.full((len(rows), longest), NO_WORD, dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def ragged(table: Answers) -> list[list[int]]:
    """Return the rows of a padded table without the padding."""
    rows: list[list[int]] = table.tolist()
    return [row[:length] for row, length in zip(rows, (table != NO_WORD).sum(axis=1).tolist(), strict=True)]


def as_lists(answers: Answers, type_name: str) -> list[Any]:
    """Return answers as plain lists for JSON; rows of tags end with their last word."""
    lists: list[Any] = task_types.get(type_name)().to_lists(answers)
    return lists


def from_lists(rows: Sequence[Any], type_name: str) -> Answers:
    """Return what `as_lists` wrote as an array again."""
    array: Answers = task_types.get(type_name)().from_lists(rows)
    return array


def score_scale(task: Task) -> tuple[float, float]:
    """Return mean and standard deviation of train's scores, which standardize them for the model."""
    scores = [float(example.label) for example in task.train if isinstance(example.label, float)]
    return statistics.fmean(scores), statistics.pstdev(scores)
