"""Hyperlinks of texts as character spans: read from rows, and cut with passages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from endtask.errors import InputError
from endtask.io.input_files import InputFile

LINKS_COLUMN = "links"

Links = tuple[tuple[int, int], ...]
"""Character spans (start, end) of a text, in order and without overlap."""


def read_links(value: Any, text: str, *, path: InputFile | str, row: int) -> Links:
    """Return the hyperlinks of a row in order, without white space at their ends and without empty ones.

    >>> read_links([[6, 9], [0, 3]], "one   two ", path="a.jsonl", row=1)
    ((0, 3), (6, 9))
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise _not_links(f"is of type {type(value).__name__}", path, row)
    spans = sorted(_span(entry, text, path, row) for entry in value)
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            message = f"column {LINKS_COLUMN!r}: the span at {start} overlaps the one before it"
            raise InputError(message, path=path, row=row)
    trimmed = (_trimmed(text, start, end) for start, end in spans)
    return tuple((start, end) for start, end in trimmed if start < end)


def links_inside(links: Links, start: int, end: int) -> Links:
    """Return the links that lie completely in text[start:end], relative to `start`.

    >>> links_inside(((0, 3), (6, 9), (8, 12)), 5, 11)
    ((1, 4),)
    """
    return tuple((first - start, last - start) for first, last in links if start <= first and last <= end)


def _span(entry: Any, text: str, path: InputFile | str, row: int) -> tuple[int, int]:
    if not isinstance(entry, list | tuple) or len(entry) != 2 or any(type(index) is not int for index in entry):
        raise _not_links(f"holds {str(entry)[:40]!r}", path, row)
    start, end = entry
    if not 0 <= start < end <= len(text):
        raise _not_links(f"holds [{start}, {end}] in a text of {len(text)} characters", path, row)
    return start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())


def _not_links(problem: str, path: InputFile | str, row: int) -> InputError:
    hint = "links are [[start, end], ...] in characters of the text"
    return InputError(f"column {LINKS_COLUMN!r} {problem}", path=path, row=row, hint=hint)
