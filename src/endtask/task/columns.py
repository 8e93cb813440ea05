"""The columns of a task's table, by the settings or by their usual names, and the values of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from endtask.config import ColumnSettings
from endtask.errors import InputError, nearest
from endtask.io.parsing import ParseError, parse_json
from endtask.registry import task_types

_PAIRS = (
    ("text", "text_pair"), ("sentence", "text_pair"), ("text", "text2"), ("text1", "text2"),
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
_USUAL: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "sentence1", "premise", "question", "review", "content", "string"),
    "label": ("label", "labels", "class", "category", "target", "score", "intent"),
    "tokens": ("tokens", "words"),
    "tags": ("tags", "ner_tags", "bio_tags", "labels"),
    "id": ("id",),
}


@dataclass(frozen=True)
class Columns:
    """The column found for each role, or None."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    tokens: str | None = None
    tags: str | None = None
    id: str | None = None
    group: str | None = None


def find_columns(present: Sequence[str], wanted: ColumnSettings, path: str) -> Columns:
    """Return the columns of a table; a column named in the settings must exist, others may be missing.

    >>> find_columns(["premise", "hypothesis", "label"], ColumnSettings(), "train.csv").text_pair
    'hypothesis'
    """
    found: dict[str, str | None] = {}
    for role, name in wanted.model_dump().items():
        if name is not None and name not in present:
            raise _missing_named(role, name, present, path)
        found[role] = name or next((usual for usual in _USUAL.get(role, ()) if usual in present), None)
    if wanted.text_pair is None:
        text, found["text_pair"] = _find_pair(present, wanted.text)
        found["text"] = text or found["text"]
    return Columns(**found)


def require_columns(columns: Columns, type_name: str, present: Sequence[str], path: str) -> None:
    """Raise an InputError if the table lacks a column that this task type needs."""
    needed = task_types.get(type_name).columns
    for role in needed:
        if getattr(columns, role) is None:
            used = {getattr(columns, other) for other in needed}
            raise _missing_usual(role, type_name, present, path, spare=[name for name in present if name not in used])


def _find_pair(present: Sequence[str], text: str | None) -> tuple[str | None, str | None]:
    """Return the first usual pair of columns that exists; its first is `text`, if given."""
    for first, second in _PAIRS:
        if first in present and second in present and text in (None, first):
            return first, second
    return text, "text_pair" if "text_pair" in present and text is not None else None


def _missing_named(role: str, name: str, present: Sequence[str], path: str) -> InputError:
    close = nearest(name, present)
    return InputError(
        f"no column {name!r} for task.columns.{role}; the columns are {_list(present)}",
        path=path,
        hint=f"did you mean task.columns.{role}={close}?" if close else None,
    )


def _missing_usual(role: str, type_name: str, present: Sequence[str], path: str, *, spare: Sequence[str]) -> InputError:
    usual = _USUAL.get(role) or tuple(second for _, second in _PAIRS)
    close = next((name for name in spare if nearest(name, usual)), None)
    setting = f"task.columns.{role}={close or '...'}"
    return InputError(
        f"no column for the {role} of a task of type {type_name!r}; the columns are {_list(present)}",
        path=path,
        hint=f"did you mean {setting}?" if close else f"name it with {setting}",
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "") if names else "none"


_SHOWN = 40


class WrongCell(ValueError):
    """What is wrong with a cell; the caller knows the file and the row."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def as_class(value: str | bool | int | float) -> str:
    """Return a class name; Parquet tables with gaps hold whole numbers as floats, so 1.0 and 1 are one class."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def as_number(value: Any) -> float | None:
    """Return the finite number that a cell holds, or None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "_" in str(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_list(cell: Any) -> bool:
    """Return whether a cell is a list, or was written as one."""
    if isinstance(cell, str) and cell.startswith("[") and cell.endswith("]"):
        try:
            return isinstance(parse_json(cell), list)
        except ParseError:
            return cell[1:2] == "'"
    return isinstance(cell, list | tuple)


def split_cell(cell: str, column: str) -> list[Any]:
    """Return the items of a cell: a JSON list, or words between blanks."""
    if cell.startswith("[") and cell.endswith("]"):
        try:
            return list(parse_json(cell))
        except ParseError:
            if cell[1:2] == "'" or column == "labels":
                how = '["a", "b"]' if column == "labels" else "JSON or between blanks"
                raise WrongCell(f"the {column} {_short(cell)} are not a JSON list", f"write them as {how}") from None
    return cell.split()


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")
