"""Hyperlinks of a row: character spans `[[start, end], ...]` of its text, and what of them is left in a passage."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from endtask.errors import InputError

COLUMN = "links"
Links = tuple[tuple[int, int], ...]


def read_links(value: Any, text: str, *, path: Path | str, row: int) -> Links:
    """The spans of a row in order; white space at their ends is left out, and so is a span of nothing else.

    >>> read_links([[6, 9], [0, 3]], "one   two ", path="a.jsonl", row=1)
    ((0, 3), (6, 9))
    """
    if value is None:
        return ()
    spans = sorted(_span(entry, text, path, row) for entry in _list(value, path, row))
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            raise InputError(f"column {COLUMN!r}: the span at {start} overlaps the one before it", path=path, row=row)
    trimmed = (_trimmed(text, start, end) for start, end in spans)
    return tuple((start, end) for start, end in trimmed if start < end)


def links_inside(links: Links, start: int, end: int) -> Links:
    """The links that lie wholly between two places of the text, counted from the first; half an anchor is none.

    >>> links_inside(((0, 3), (6, 9), (8, 12)), 5, 11)
    ((1, 4),)
    """
    return tuple((first - start, last - start) for first, last in links if start <= first and last <= end)


def _list(value: Any, path: Path | str, row: int) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _not_spans(f"is of type {type(value).__name__}", path, row)
    return list(value)


def _span(entry: Any, text: str, path: Path | str, row: int) -> tuple[int, int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or any(type(place) is not int for place in entry):
        raise _not_spans(f"holds {str(entry)[:40]!r}", path, row)
    start, end = entry
    if not 0 <= start < end <= len(text):
        raise _not_spans(f"holds [{start}, {end}] in a text of {len(text)} characters", path, row)
    return start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _not_spans(what: str, path: Path | str, row: int) -> InputError:
    return InputError(
        f"column {COLUMN!r} {what}", path=path, row=row, hint="links are [[start, end], ...] in characters of the text"
    )
