"""Rows of a table turned into examples: the type of the task, its texts and its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from endtask.errors import InputError, a_few
from endtask.io.tables import Row
from endtask.records import Example
from endtask.registry import task_types
from endtask.task.cells import WrongCell, as_class, is_list, is_missing
from endtask.task.columns import Columns
from endtask.task.split_tables import Table

_DELIMITERS = (";", "|", ",", "/", "\t")
_ROWS_SHOWN = 3


def detect_type(requested: str, columns: Columns, train: Table, *, label_delimiter: str | None = None) -> str:
    """Return the requested task type, or for `auto` the one that fits the columns and the labels of train."""
    if requested != "auto":
        return requested
    labels = {number: row.get(columns.label) for number, row in train.rows} if columns.label else {}
    given = {number: label for number, label in labels.items() if not is_missing(label)}
    types = sorted(map(task_types.get, task_types.names()), key=lambda one: one.detection_order)
    return str(next(one.name for one in types if one().detect(columns, train, given, label_delimiter)))


def read_examples(
    table: Table, split: str, columns: Columns, type_name: str, *, label_delimiter: str | None = None
) -> Iterator[Example]:
    """Yield the examples of one split in the order of the rows; texts may be empty, labels may not."""
    task_type = task_types.get(type_name)()
    if label_delimiter is not None:
        _check_delimiter(table, split, columns, type_name, label_delimiter)
    wrong: dict[int, WrongCell] = {}
    for number, row in table.rows:
        try:
            label = task_type.label_cell(row, columns, label_delimiter)
            yield _read_example(row, label, f"{split}-{number}", columns, task_type, table.path, number)
        except WrongCell as found:
            wrong[number] = found  # the others are read too, so that all can be mended at once
    if wrong:
        (number, first), *others = wrong.items()
        message = f"{first}{_as_in([row for row, _ in others])}"
        raise InputError(message, path=table.path, row=number, hint=first.hint)


def _as_in(rows: Sequence[int]) -> str:
    """Which further rows cannot be read.

    >>> _as_in([]), _as_in([7]), _as_in([2, 4, 5, 9])
    ('', '; row 7 cannot be read either', '; 4 more rows cannot be read either: 2, 4, 5, ...')
    """
    if len(rows) < 2:
        return "".join(f"; row {row} cannot be read either" for row in rows)
    return f"; {len(rows)} more rows cannot be read either: {a_few(map(str, rows), _ROWS_SHOWN)}"


def is_empty(example: Example) -> bool:
    """Whether the text, or the second text of a pair, holds nothing but blanks."""
    return not example.text.strip() or (example.text_pair is not None and not example.text_pair.strip())


def complete(example: Example, label: Any, task_type: Any) -> Example:
    """Return the example with this label as its task type writes it; raises `WrongCell` where something is missing.

    >>> complete(Example("1", "a text", ""), 1.0, task_types.get("text")()).label
    '1'
    """
    task_type.check_example(example, None)
    written = task_type.as_label(label)
    task_type.check_example(example, written)
    same = type(written) is type(example.label) and written == example.label
    return example if same else replace(example, label=written)


def _read_example(
    row: Row, label: Any, default_id: str, columns: Columns, task_type: Any, path: str, number: int
) -> Example:
    tokens = task_type.words(row, columns)
    text = " ".join(tokens) if tokens is not None else _as_text(row, str(columns.text))
    has_pair = columns.text_pair and task_type.second_text != "never"
    example = Example(
        id=_as_id(row, columns.id) if columns.id else default_id,
        text=text,
        label="",
        text_pair=_as_text(row, str(columns.text_pair)) if has_pair else None,
        tokens=tokens,
        group=_as_id(row, columns.group) if columns.group else None,
        path=path,
        row=number,
    )
    # A row without text is dropped later whatever its label is, so its label is not checked.
    return example if is_empty(example) else complete(example, label, task_type)


def _as_text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        found = "missing" if value is None else f"of type {type(value).__name__}, not a string"
        raise WrongCell(f"the text in column {column!r} is {found}")
    return value


def _as_id(row: Row, column: str) -> str:
    value = row.get(column)
    if is_missing(value) or not isinstance(value, str | int | float):
        raise WrongCell(f"column {column!r} holds {value!r}, not a name or number")
    return as_class(value)


def _check_delimiter(table: Table, split: str, columns: Columns, type_name: str, delimiter: str) -> None:
    """Raise where the delimiter separates nothing: each cell would be a label of its own, and be scored."""
    key = "task.label_delimiter"
    if not task_types.get(type_name).splits_cells:
        raise InputError(f"has no meaning for a task of type {type_name!r}", key=key, hint="it is for type multilabel")
    cells = [row.get(str(columns.label)) for _, row in table.rows]
    strings = [cell for cell in cells if isinstance(cell, str) and cell.strip() and not is_list(cell)]
    if split != "train" or not strings or any(delimiter in cell for cell in strings):
        return
    other = next((candidate for candidate in _DELIMITERS if any(candidate in cell for cell in strings)), None)
    hint = f"did you mean {other!r}?" if other else "type 'text' is for one label in each row"
    raise InputError(f"no row of column {columns.label!r} holds {delimiter!r}", path=table.path, key=key, hint=hint)
