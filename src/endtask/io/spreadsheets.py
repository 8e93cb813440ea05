"""Cells of CSV and TSV files that spreadsheets would run as formulas."""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escaped(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula: with an apostrophe before it, unless it is a number.

    >>> escaped("=1+1"), escaped("-0.5"), escaped("a=b")
    ("'=1+1", '-0.5', 'a=b')
    """
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell
