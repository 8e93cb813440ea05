"""Cells of a task's table: class names, numbers, and lists that tables without lists hold as text."""

from __future__ import annotations

import json
import math
from typing import Any

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
            return isinstance(json.loads(cell), list)
        except json.JSONDecodeError:
            return cell[1:2] == "'"
    return isinstance(cell, list | tuple)


def split_cell(cell: str, column: str) -> list[Any]:
    """Return the items of a cell: a JSON list, or words between blanks."""
    if cell.startswith("[") and cell.endswith("]"):
        try:
            return list(json.loads(cell))
        except json.JSONDecodeError:
            if cell[1:2] == "'" or column == "labels":
                how = '["a", "b"]' if column == "labels" else "JSON or between blanks"
                raise WrongCell(f"the {column} {_short(cell)} are not a JSON list", f"write them as {how}") from None
    return cell.split()


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "...")
