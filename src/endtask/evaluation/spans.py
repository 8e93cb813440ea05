"""Spans that the tags of a text make: begin-inside-outside tags, or marked starts and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Scheme = Literal["bio", "ends", "none"]
Span = tuple[str, int, int]
"""Type, first word, and the word behind the last."""

_SAME = {"L": "E", "U": "S"}
_PREFIXES = ("B", "I", "E", "S")
_ENDS = frozenset({"start", "end", "both", "none"})


def scheme_of(tags: Iterable[str]) -> Scheme:
    """How a set of tags marks spans: `B-X I-X O` (with `E- S-` or `L- U-` too), start/end/both/none, or not at all.

    >>> scheme_of(["O", "B-place", "I-place"]), scheme_of(["none", "start", "end"]), scheme_of(["NOUN", "VERB"])
    ('bio', 'ends', 'none')
    """
    names = set(tags)
    if {name.lower() for name in names} <= _ENDS and "none" in {name.lower() for name in names}:
        return "ends"
    inside = [name for name in names if name != "O"]
    return "bio" if inside and all(_parts(name)[0] in _PREFIXES for name in inside) else "none"


def spans_of(tags: Sequence[str], scheme: Scheme, *, strict: bool = False) -> list[Span]:
    """The spans of a text in order.

    Of `bio` tags a span begins at B, and also, as in the CoNLL evaluation, at an I that goes on with nothing; `strict`
    leaves such spans out. Of marked ends it goes from a start to the next end, if no other start is between.

    >>> spans_of(["I-place", "O", "B-time", "I-time"], "bio")
    [('place', 0, 1), ('time', 2, 4)]
    >>> spans_of(["I-place", "O", "B-time", "I-time"], "bio", strict=True)
    [('time', 2, 4)]
    >>> spans_of(["both", "start", "none", "end", "end"], "ends")
    [('', 0, 1), ('', 1, 4)]
    """
    if scheme == "ends":
        return list(_between_ends([tag.lower() for tag in tags]))
    if scheme == "none":
        return []
    parts = [_parts(tag) for tag in tags]
    return list(_strict_spans(parts) if strict else _chunks(parts))


def _parts(tag: str) -> tuple[str, str]:
    """The place in a span and the span's type; the place is empty where the tag says none."""
    if tag == "O":
        return "O", ""
    prefix, dash, kind = tag.partition("-")
    prefix = _SAME.get(prefix, prefix)
    return (prefix, kind) if prefix in _PREFIXES and (dash or len(tag) == 1) else ("", tag)


def _chunks(parts: Sequence[tuple[str, str]]) -> Iterator[Span]:
    """Runs of words of one type; B and S begin a new one, E and S are its last."""
    start, before, kind = 0, "O", ""
    for position, (prefix, name) in enumerate([*parts, ("O", "")]):
        goes_on = prefix in ("I", "E") and before in ("B", "I") and name == kind
        if before != "O" and not goes_on:
            yield kind, start, position
        if prefix != "O" and not goes_on:
            start = position
        before, kind = prefix, name


def _strict_spans(parts: Sequence[tuple[str, str]]) -> Iterator[Span]:
    """Spans that begin with B, or are a single S; where ends are marked, only those that have one."""
    marked_ends = any(prefix in ("E", "S") for prefix, _ in parts)
    for start, (prefix, kind) in enumerate(parts):
        if prefix == "S":
            yield kind, start, start + 1
        if prefix != "B":
            continue
        end = start + 1
        while end < len(parts) and parts[end] == ("I", kind):
            end += 1
        closed = end < len(parts) and parts[end] == ("E", kind)
        if closed or not marked_ends:
            yield kind, start, end + closed


def _between_ends(tags: Sequence[str]) -> Iterator[Span]:
    start = None
    for position, tag in enumerate(tags):
        if tag == "both":
            yield "", position, position + 1
        if tag == "end" and start is not None:
            yield "", start, position + 1
        if tag != "none":
            start = position if tag == "start" else None
