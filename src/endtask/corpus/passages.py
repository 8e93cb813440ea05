"""Cut long documents into passages of similar length, at the best boundary near each even cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

Passage = TypeVar("Passage")

# In each pattern the last matching group starts where the passage may end.
_PARAGRAPH_END = re.compile(r"""(\n[^\S\n]*\n)|[.!?…]["”’»')\]]*[^\S\n]*(\n)""")
_SENTENCE_END = re.compile(r"""[.!?…]["”’»')\]]*(\s)(?=\s*[^\sa-z])|[。！？]["”’」』）]*()""")
_LINE_END = re.compile(r"(\n)")
_WORD_END = re.compile(r"(\s)")
_BOUNDARIES = (_PARAGRAPH_END, _SENTENCE_END, _LINE_END, _WORD_END)

_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Figs?|Eqs?|Secs?|Tab|Refs?|No|Nos|al|vs|cf|ca|pp|e\.g|i\.e)\.$"
)
_LONGEST_ABBREVIATION = 8
_LOOKAHEAD = 64  # characters past a window that a pattern may see


def cut(text: str, limit: int) -> list[str]:
    """Cut a text into passages of at most `limit` characters.

    Prefers paragraph ends to sentence ends, and those to line and word ends; without any boundary it cuts at the limit.
    Only white space at the cuts is lost. A text that fits is one passage; a text without words gives none.

    >>> cut("One two. Three four. Five six.", 21)
    ['One two. Three four.', 'Five six.']
    """
    return [text[start:end] for start, end in passage_spans(text, limit)]


def passage_spans(text: str, limit: int) -> list[tuple[int, int]]:
    """Return (start, end) of the passages of `cut`, in characters of the text.

    >>> passage_spans(" One two. Three four. ", 12)
    [(1, 9), (10, 21)]
    """
    stripped = text.strip()
    if not stripped:
        return []
    before = len(text) - len(text.lstrip())
    if len(stripped) <= limit:
        return [(before, before + len(stripped))]
    return [(before + start, before + end) for start, end in _passage_spans(stripped, limit)]


def sentence_starts(text: str) -> list[int]:
    """Return where sentences start, in characters, from 0; abbreviations do not end a sentence.

    >>> sentence_starts("Dr. Who came. He left.")
    [0, 14]
    """
    boundaries = _boundaries(_SENTENCE_END, text, 2, len(text))
    starts = (len(text) - len(text[boundary:].lstrip()) for boundary in boundaries)
    return [0, *dict.fromkeys(start for start in starts if 0 < start < len(text))]


def number_passages(document_id: str, passages: Iterator[Passage]) -> Iterator[tuple[str, Passage]]:
    """Yield (id, passage): the id of the document if it has only one passage, else `<id>#p<N>` from 1."""
    first = next(passages, None)
    if first is None:
        return
    second = next(passages, None)
    if second is None:
        yield document_id, first
        return
    yield f"{document_id}#p1", first
    yield f"{document_id}#p2", second
    for number, passage in enumerate(passages, start=3):
        yield f"{document_id}#p{number}", passage


def _passage_spans(text: str, limit: int) -> Iterator[tuple[int, int]]:
    start = 0
    while len(text) - start > limit:
        boundary = _next_cut(text, start, limit)
        yield start, start + len(text[start:boundary].rstrip())
        start = boundary
        while text[start].isspace():
            start += 1
    yield start, len(text)


def _next_cut(text: str, start: int, limit: int) -> int:
    """Return where the passage from `start` ends: near an even share of the rest, so that no tiny passage remains."""
    rest = len(text) - start
    even = -(-rest // -(-rest // limit))
    low = start + max(1, even // 2)
    high = min(start + limit, len(text) - even // 2)
    for pattern in _BOUNDARIES:
        boundaries = _boundaries(pattern, text, low, high)
        best = min(boundaries, key=lambda boundary: abs(boundary - start - even), default=None)
        if best is not None:
            return best
    return start + even


def _boundaries(pattern: re.Pattern[str], text: str, low: int, high: int) -> Iterator[int]:
    for match in pattern.finditer(text, max(0, low - 2), high + _LOOKAHEAD):
        boundary = match.start(match.lastindex or 0)
        if boundary > high:
            return
        if boundary >= low and not (pattern is _SENTENCE_END and _is_abbreviation(text, match.start())):
            yield boundary


def _is_abbreviation(text: str, dot: int) -> bool:
    return _ABBREVIATION.search(text[max(0, dot - _LONGEST_ABBREVIATION) : dot + 1]) is not None
