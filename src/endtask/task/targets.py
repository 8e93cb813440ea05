"""The targets of a split as one array, for every kind of task, with rows as the first dimension."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import TaskKind
from endtask.task.task import Task

NO_WORD = -1
"""Padding after the last word of a row of tags."""

Answers = NDArray[Any]
"""Class numbers (rows,) of texts and pairs, scores (rows,), 0 or 1 for each label (rows, labels), or tag numbers
(rows, words of the longest row) padded with `NO_WORD`."""


def targets(task: Task, split: str) -> Answers:
    """Return the targets of a split; numbers are indices into `task.all_labels`.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), "a b", ("B", "O")[: n + 1], tokens=("a", "b")[: n + 1]) for n in range(2)]
    >>> targets(Task.from_examples("tiny", {"train": rows, "dev": rows}, kind="tags", test_fraction=0), "dev").tolist()
    [[0, -1], [0, 1]]
    """
    return numbered([example.label for example in task.splits[split]], task.kind, task.all_labels)


def numbered(answers: Sequence[Any], kind: TaskKind, labels: Sequence[str]) -> Answers:
    """Convert answers by name (class, score, labels, tags) to one array; raises KeyError for an unknown name."""
    number = {label: index for index, label in enumerate(labels)}
    if kind == "score":
        return np.asarray(answers, dtype=np.float64)
    if kind == "labels":
        table = np.zeros((len(answers), len(labels)), dtype=np.int64)
        for row, names in enumerate(answers):
            table[row, [number[name] for name in names]] = 1
        return table
    if kind == "tags":
        return padded([[number[tag] for tag in tags] for tags in answers])
    return np.asarray([number[str(answer)] for answer in answers], dtype=np.int64)


def named(answers: Answers, kind: TaskKind, labels: Sequence[str]) -> list[Any]:
    """Convert an array of answers to names, as they are stored in files.

    >>> named(np.array([[0, 1, 1]]), "labels", ("a", "b", "c")), named(np.array([[1, 0, -1]]), "tags", ("B", "O"))
    ([['b', 'c']], [['O', 'B']])
    """
    if kind == "score":
        return [float(value) for value in answers]
    if kind == "labels":
        return [[labels[index] for index in np.flatnonzero(row).tolist()] for row in answers]
    if kind == "tags":
        return [[labels[number] for number in row] for row in ragged(answers)]
    return [labels[int(number)] for number in answers]


def padded(rows: Sequence[Sequence[int]], width: int | None = None) -> Answers:
    """Return rows of different lengths as one array, padded with `NO_WORD`."""
    longest = max((len(row) for row in rows), default=0) if width is None else width
    table = np.full((len(rows), longest), NO_WORD, dtype=np.int64)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table


def ragged(table: Answers) -> list[list[int]]:
    """Return the rows of a padded array without the padding."""
    rows: list[list[int]] = table.tolist()
    return [row[:length] for row, length in zip(rows, (table != NO_WORD).sum(axis=1).tolist(), strict=True)]


def as_lists(answers: Answers, kind: TaskKind) -> list[Any]:
    """Return answers as plain lists for JSON, rows of tags without padding."""
    return ragged(answers) if kind == "tags" else answers.tolist()


def from_lists(rows: Sequence[Any], kind: TaskKind) -> Answers:
    """Return the array that `as_lists` converted."""
    if kind == "tags":
        return padded(rows)
    return np.asarray(rows, dtype=np.float64 if kind == "score" else np.int64)


def score_scale(task: Task) -> tuple[float, float]:
    """Return mean and standard deviation of train's scores, which scale the targets; the deviation is never 0."""
    scores = [float(example.label) for example in task.train if isinstance(example.label, float)]
    return statistics.fmean(scores), statistics.pstdev(scores)
