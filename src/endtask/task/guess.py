"""Guess the columns of a task whose columns have unusual names, and which file of a folder is a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from endtask.config import ColumnSettings, TaskSettings
from endtask.errors import InputError
from endtask.task.columns import as_number, is_list, is_missing
from endtask.task.split_tables import read_tables
from endtask.task.table import Table
from endtask.task.task import Task

_SAMPLED_ROWS = 1000
_LARGEST_FILE = 200_000_000
"""A larger file is text to learn from rather than a task."""
_MOST_CLASSES, _LONGEST_LABEL = 200, 60
_ROWS_PER_CLASS = 3
_NO_LABELS = ("id", "index", "idx", "row", "number", "no", "date", "time", "url", "unnamed: 0", "")


@dataclass(frozen=True)
class GuessedTask:
    """A task that can be read, and the columns that had to be guessed for it."""

    path: str
    task: Task
    columns: dict[str, str]

    def __str__(self) -> str:
        """Return rows, type and classes in a sentence."""
        rows = sum(len(examples) for examples in self.task.splits.values())
        names = ", ".join(self.task.labels[:4]) + (", ..." if len(self.task.labels) > 4 else "")
        classes = f", {len(self.task.labels)} labels ({names})" if self.task.labels else ""
        return f"{rows:,} rows, type {self.task.type}{classes}"


def guess_task(path: str, columns: ColumnSettings) -> GuessedTask:
    """Read a task, with guessed columns where the usual names are missing; raises the `InputError` of reading it."""
    try:
        return GuessedTask(path, Task.read(TaskSettings(path=path, columns=columns)), {})
    except InputError as error:
        if "column" not in error.message:
            raise
        guessed = guess_columns(read_tables(path)[0]["train"])
        missing = {role: name for role, name in guessed.items() if getattr(columns, role) is None}
        if not missing:
            raise
        settings = columns.model_copy(update=missing)
        return GuessedTask(path, Task.read(TaskSettings(path=path, columns=settings)), missing)


def find_task(folder: Path) -> GuessedTask | None:
    """Return the first file or folder in a folder that can be read as a task; None without any."""
    for entry in _candidates(folder):
        try:
            return guess_task(str(entry), ColumnSettings())
        except InputError:
            continue
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield what may be a task: entries whose name says so first, then by name."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name != "runs"]
    named = ("label", "train", "task")
    for entry in sorted(entries, key=lambda path: (not any(word in path.name.lower() for word in named), path.name)):
        if entry.is_dir() or (entry.is_file() and entry.stat().st_size <= _LARGEST_FILE):
            yield entry


def guess_columns(table: Table) -> dict[str, str]:
    """Return the columns of text and label by the values of a table; empty where they do not show.

    The text is the longest of the columns whose values differ, the label a column of few values.

    >>> rows = [{"nr": n, "abstract": f"text number {n}", "area": "ab"[n % 2]} for n in range(20)]
    >>> guess_columns(Table("labels.csv", tuple(enumerate(rows))))
    {'text': 'abstract', 'label': 'area'}
    """
    rows = [row for _, row in islice(table.rows, _SAMPLED_ROWS)]
    values = {name: [row.get(name) for row in rows if not is_missing(row.get(name))] for name in table.columns}
    lengths = {name: _mean_length(column) for name, column in values.items() if _is_text(column)}
    text = max(lengths, key=lambda name: lengths[name], default=None)
    labels = {name: rank for name, column in values.items() if name != text and (rank := _label_rank(name, column))}
    if text is None or not labels:
        return {}
    return {"text": text, "label": min(labels, key=lambda name: labels[name])}


def _is_text(column: list[Any]) -> bool:
    strings = [value for value in column if isinstance(value, str) and as_number(value) is None]
    return len(strings) > 0.9 * len(column) > 0 and len(set(strings)) > 0.5 * len(strings)


def _mean_length(column: list[Any]) -> float:
    return fmean(len(str(value)) for value in column)


def _label_rank(name: str, column: list[Any]) -> tuple[int, int] | None:
    """Return how unlikely a column is the label, lower is better; None where it cannot be.

    Words come before numbers, and few different values before many.
    """
    if name.lower() in _NO_LABELS or name.lower().endswith("_id") or not column or any(map(is_list, column)):
        return None
    distinct = {str(value) for value in column}
    if len(distinct) < 2 or len(distinct) > min(_MOST_CLASSES, len(column) / _ROWS_PER_CLASS):
        return None
    if max(map(len, distinct)) > _LONGEST_LABEL:
        return None
    return (int(all(as_number(value) is not None for value in column)), len(distinct))
