"""Turn the rows of a table into examples: the kind of the task, its texts and its labels."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from endtask.config import TaskKind
from endtask.errors import InputError, a_few
from endtask.io.tables import Row
from endtask.records import Example, Label
from endtask.task.columns import Columns
from endtask.task.split_tables import Table

WITH_PAIR = ("pair", "score", "labels")
"""Kinds whose examples have (`pair`) or may have a second text."""

_DELIMITERS = (";", "|", ",", "/", "\t")
_SHOWN = 40
_ROWS_SHOWN = 3


class WrongCell(ValueError):
    """A cell cannot be read; the caller adds file and row."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def decide_kind(
    requested: TaskKind | Literal["auto"], columns: Columns, train: Table, *, label_delimiter: str | None = None
) -> TaskKind:
    """Return the requested kind, or detect it from the columns and the labels of train."""
    if requested != "auto":
        return requested
    if columns.tokens and columns.tags and _holds_tags(columns, train):
        return "tags"
    labels = {number: row.get(columns.label) for number, row in train.rows} if columns.label else {}
    given = {number: label for number, label in labels.items() if not _is_missing(label)}
    # A single odd row is a mistake in that row, which a message then names, and not another kind of task.
    if label_delimiter is not None or 2 * sum(map(_is_list, given.values())) > len(given):
        return "labels"
    if _are_scores(given, train.path):
        return "score"
    return "pair" if columns.text_pair else "text"


def read_examples(
    table: Table, split: str, columns: Columns, kind: TaskKind, *, label_delimiter: str | None = None
) -> Iterator[Example]:
    """Yield the examples of one split in the order of the rows; texts may be empty, labels may not."""
    if label_delimiter is not None:
        _check_delimiter(table, split, columns, kind, label_delimiter)
    wrong: dict[int, WrongCell] = {}
    for number, row in table.rows:
        try:
            if kind == "labels" and columns.label:
                row = {**row, columns.label: _split_labels(row.get(columns.label), label_delimiter)}
            yield _read_example(row, f"{split}-{number}", columns, kind, table.path, number)
        except WrongCell as found:
            wrong[number] = found  # reads on, so that one message names all rows to repair
    if wrong:
        (number, first), *others = wrong.items()
        message = f"{first}{_as_in([row for row, _ in others])}"
        raise InputError(message, path=table.path, row=number, hint=first.hint)


def _as_in(rows: Sequence[int]) -> str:
    """Return the part of a message that names other rows that cannot be read.

    >>> _as_in([]), _as_in([7]), _as_in([2, 4, 5, 9])
    ('', '; row 7 cannot be read either', '; 4 more rows cannot be read either: 2, 4, 5, ...')
    """
    if len(rows) < 2:
        return "".join(f"; row {row} cannot be read either" for row in rows)
    return f"; {len(rows)} more rows cannot be read either: {a_few(map(str, rows), _ROWS_SHOWN)}"


def is_empty(example: Example) -> bool:
    """Return whether the text, or the second text of a pair, is blank."""
    return not example.text.strip() or (example.text_pair is not None and not example.text_pair.strip())


def complete(example: Example, label: Any, kind: TaskKind) -> Example:
    """Return the example with its label in the form of its kind; raises WrongCell if the kind needs more."""
    if kind == "pair" and example.text_pair is None:
        raise WrongCell("the second text is missing")
    if kind == "tags" and example.tokens is None:
        raise WrongCell("the tokens are missing")
    written = as_label(label, kind)
    if kind == "tags" and isinstance(written, tuple) and len(written) != len(example.tokens or ()):
        raise WrongCell(f"{len(example.tokens or ())} tokens but {len(written)} tags", "one tag for each token")
    same = type(written) is type(example.label) and written == example.label
    return example if same else replace(example, label=written)


def as_label(value: Any, kind: TaskKind) -> Label:
    """Return a label in the form of its kind; raises WrongCell for a missing label or one of another kind.

    >>> as_label(1.0, "text"), as_label("3.8", "score"), as_label(True, "pair"), as_label(["b", "a"], "labels")
    ('1', 3.8, 'true', ('a', 'b'))
    """
    if kind == "tags":
        return _as_words(value, "tags")
    if kind == "labels":
        return _as_label_set(value)
    if _is_missing(value):
        raise WrongCell("the label is missing")
    if kind == "score":
        number = as_number(value)
        if number is None:
            raise WrongCell(f"the label {value!r} is not a number", "kind 'score' needs numbers; see task.kind")
        return number
    if not isinstance(value, str | bool | int | float):
        raise WrongCell(f"the label is of type {type(value).__name__}, not one class", "see task.columns.label")
    return _as_class(value)


def as_number(value: Any) -> float | None:
    """The finite number that a cell holds, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "_" in str(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_example(row: Row, default_id: str, columns: Columns, kind: TaskKind, path: str, number: int) -> Example:
    tokens = _as_words(row.get(str(columns.tokens)), "tokens") if kind == "tags" else None
    text = " ".join(tokens) if tokens is not None else _as_text(row, str(columns.text))
    pair = _as_text(row, columns.text_pair) if columns.text_pair and kind in WITH_PAIR else None
    example = Example(
        id=_as_id(row, columns.id) if columns.id else default_id,
        text=text,
        label="",
        text_pair=pair,
        tokens=tokens,
        group=_as_id(row, columns.group) if columns.group else None,
        path=path,
        row=number,
    )
    # A row without text is dropped later, so its label does not matter.
    label = row.get(str(columns.tags if kind == "tags" else columns.label))
    return example if is_empty(example) else complete(example, label, kind)


def _as_text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        found = "missing" if value is None else f"of type {type(value).__name__}, not a string"
        raise WrongCell(f"the text in column {column!r} is {found}")
    return value


def _as_id(row: Row, column: str) -> str:
    value = row.get(column)
    if _is_missing(value) or not isinstance(value, str | int | float):
        raise WrongCell(f"column {column!r} holds {value!r}, not a name or number")
    return _as_class(value)


def _as_class(value: str | bool | int | float) -> str:
    """Return a class name; Parquet tables with missing values hold integers as floats, so 1.0 and 1 are one class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_words(value: Any, column: str) -> tuple[str, ...]:
    """Return a list of strings (integers count as tags); a CSV cell holds a JSON list or words between blanks."""
    if isinstance(value, str):
        value = _split_cell(value, column)
    if not isinstance(value, list | tuple):
        found = "missing" if value is None else f"of type {type(value).__name__}, not a list"
        raise WrongCell(f"the {column} are {found}")
    if column == "tags":
        value = [_as_class(tag) if isinstance(tag, int) else tag for tag in value]
    for position, word in enumerate(value, start=1):
        if not isinstance(word, str) or not word.strip():
            raise WrongCell(f"number {position} of the {column} is {word!r}, not a word")
    return tuple(value)


def _check_delimiter(table: Table, split: str, columns: Columns, kind: TaskKind, delimiter: str) -> None:
    """Raise an InputError if no cell of train has the delimiter: each cell would count as one label unnoticed."""
    key = "task.label_delimiter"
    if kind != "labels":
        raise InputError(f"has no meaning for a task of kind {kind!r}", key=key, hint="it is for kind labels")
    cells = [row.get(str(columns.label)) for _, row in table.rows]
    strings = [cell for cell in cells if isinstance(cell, str) and cell.strip() and not _is_list(cell)]
    if split != "train" or not strings or any(delimiter in cell for cell in strings):
        return
    other = next((candidate for candidate in _DELIMITERS if any(candidate in cell for cell in strings)), None)
    hint = f"did you mean {other!r}?" if other else "kind 'text' is for one label in each row"
    raise InputError(f"no row of column {columns.label!r} holds {delimiter!r}", path=table.path, key=key, hint=hint)


def _split_labels(cell: Any, delimiter: str | None) -> Any:
    """Return the labels of a string cell: a JSON list, or names separated by the delimiter."""
    if not isinstance(cell, str):
        return cell
    if cell.startswith("[") and cell.endswith("]"):
        return _split_cell(cell, "labels")
    if not delimiter:
        hint = "name the delimiter of the labels in a cell: task.label_delimiter=';'"
        raise WrongCell(f"the labels are one string, {cell!r}", hint)
    return [name.strip() for name in cell.split(delimiter) if name.strip()]


def _as_label_set(value: Any) -> tuple[str, ...]:
    """Return the sorted labels of a row, which may be none but not missing."""
    if value is None or not isinstance(value, list | tuple):
        found = "missing" if value is None else f"of type {type(value).__name__}, not a list"
        raise WrongCell(f"the labels are {found}", "kind 'labels' needs a list in each row; [] if none holds")
    for position, name in enumerate(value, start=1):
        if _is_missing(name) or not isinstance(name, str | bool | int | float):
            raise WrongCell(f"number {position} of the labels is {name!r}, not a name")
    return tuple(sorted({_as_class(name) for name in value}))


def _split_cell(cell: str, column: str) -> list[Any]:
    if cell.startswith("[") and cell.endswith("]"):
        try:
            return list(json.loads(cell))
        except json.JSONDecodeError:
            if cell[1:2] == "'" or column == "labels":
                form = '["a", "b"]' if column == "labels" else "JSON or between blanks"
                raise WrongCell(f"the {column} {_short(cell)} are not a JSON list", f"write them as {form}") from None
    return cell.split()


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")


def _is_list(label: Any) -> bool:
    """Return whether a label is a list, or a string cell that holds one."""
    if isinstance(label, str) and label.startswith("[") and label.endswith("]"):
        try:
            return isinstance(json.loads(label), list)
        except json.JSONDecodeError:
            return label[1:2] == "'"
    return isinstance(label, list | tuple)


def _are_scores(labels: dict[int, Any], path: str) -> bool:
    """Return whether labels, by row, are numbers with fractions; raises an InputError for a word among numbers."""
    numbers = {row: as_number(label) for row, label in labels.items()}
    if not any(number % 1 for number in numbers.values() if number):
        return False
    words = [row for row, number in numbers.items() if number is None]
    if 2 * len(words) >= len(numbers):
        return False
    if words:
        found = f"the label {labels[words[0]]!r} is not a number, as {len(numbers) - len(words):,} others are"
        raise InputError(found, path=path, row=words[0], hint="set task.kind=text or pair if these are classes")
    return True


def _holds_tags(columns: Columns, train: Table) -> bool:
    """Return whether the tags column holds tags; a column `labels` may hold one class per row."""
    first = train.rows[0][1] if train.rows else {}
    return isinstance(first.get(str(columns.tags)), list) or isinstance(first.get(str(columns.tokens)), str)
