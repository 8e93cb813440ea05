"""Cells of tables in memory as plain JSON values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from typing import Any

from endtask.errors import InputError
from endtask.io.tables import Row

_MISSING = ("NAType", "NaTType")


def plain_value(value: Any) -> Any:
    """Return a cell as JSON has it: NumPy values as Python's, missing values as null, dates as text.

    Raises `TypeError` for a value that JSON cannot hold.

    >>> import numpy
    >>> [plain_value(cell) for cell in (numpy.int64(3), float("nan"), ("a", numpy.float64(0.5)), {"b", "a"})]
    [3, None, ['a', 0.5], ['a', 'b']]
    """
    if value is None or type(value).__name__ in _MISSING:
        return None
    if isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain_value, value), key=lambda item: (str(type(item)), item))
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        return plain_value(value.tolist())
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored as JSON")


def plain_row(row: Mapping[Any, Any], *, path: str, number: int) -> Row:
    """Return a row with plain values; raises `InputError` with the row and the column of a value that is not."""
    plain: Row = {}
    for name, value in row.items():
        try:
            plain[str(name)] = plain_value(value)
        except (TypeError, RecursionError) as error:
            hint = "leave the column out"
            raise InputError(str(error), path=path, row=number, key=str(name), hint=hint) from None
    return plain


def json_lines(rows: Iterable[Mapping[Any, Any]], *, path: str) -> Iterator[bytes]:
    """Yield the rows as lines of JSON in UTF-8; equal rows give equal bytes.

    >>> list(json_lines([{"text": "é", "label": 1}], path="data"))
    [b'{"text": "\\xc3\\xa9", "label": 1}\\n']
    """
    for number, row in enumerate(rows, start=1):
        plain = plain_row(row, path=path, number=number)
        try:
            yield (json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n").encode()
        except UnicodeEncodeError as error:
            half = f"half of a character (\\u{ord(error.object[error.start]):04x})"
            raise InputError(half, path=path, row=number) from None
        except ValueError:
            raise InputError("an infinite number", path=path, row=number) from None
