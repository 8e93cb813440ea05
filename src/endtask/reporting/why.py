"""Why these texts: what was kept of each source, and the best passages beside the examples that asked for them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from endtask.records import Selected
from endtask.reporting.format import shorten
from endtask.retrieval.words import IDEOGRAPH, LETTER, character_classes, fold, words_of

SHOWN = 6
_CANDIDATES = 200
_PASSAGE_CHARACTERS, _EXAMPLE_CHARACTERS = 420, 280
_BEFORE_THE_FIRST = 40  # characters shown before the first telling word
_COMMON_SHARE = 0.05
_TEXTS_FOR_COMMON_WORDS = 2000


@dataclass
class Kept:
    """What was kept: passages and bytes by source, and the best-ranked passages of all."""

    passages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    best: list[Selected] = field(default_factory=list)


@dataclass(frozen=True)
class Piece:
    """A stretch of text, marked if it is a telling word that passage and example share."""

    text: str
    marked: bool


@dataclass(frozen=True)
class Answer:
    """A kept passage and the example that asked for it; `example_id` is empty where none did, as `reason` tells."""

    passage_id: str
    passage: list[Piece]
    title: str | None
    rank: int
    score: float
    matched_count: int
    example_id: str
    example: list[Piece]
    label: str
    reason: str


def count_kept(selected: Iterable[Selected]) -> Kept:
    """Read a selection once; of passages that the same example asked for first, the best one is among `best`."""
    kept = Kept()

    def counted() -> Iterator[Selected]:
        for item in selected:
            kept.passages[item.document.source] += 1
            kept.bytes[item.document.source] += len(item.document.text.encode())
            yield item

    ranked = heapq.nsmallest(_CANDIDATES, counted(), key=lambda item: (item.rank, -item.score, item.position))
    by_query: dict[str, Selected] = {}
    for item in ranked:
        by_query.setdefault(item.matched_queries[0] if item.matched_queries else item.document.id, item)
    kept.best = list(by_query.values())[:SHOWN]
    return kept


def explain(best: Iterable[Selected], examples: Iterable[Mapping[str, Any]]) -> list[Answer]:
    """Put the examples' texts beside the passages; telling are shared words that few examples have."""
    best = list(best)
    wanted = {item.matched_queries[0] for item in best if item.matched_queries}
    found: dict[str, Mapping[str, Any]] = {}
    frequency: Counter[str] = Counter()
    texts = 0
    for example in examples:
        if texts < _TEXTS_FOR_COMMON_WORDS:
            texts += 1
            frequency.update(set(_words(_text_of(example))))
        if example["id"] in wanted:
            found[example["id"]] = example
    common = {word for word, number in frequency.items() if number > max(1, _COMMON_SHARE * texts)}
    return [
        _answer(item, found.get(item.matched_queries[0], {}) if item.matched_queries else {}, common) for item in best
    ]


def _answer(item: Selected, example: Mapping[str, Any], common: set[str]) -> Answer:
    asking = _text_of(example)
    shared = (set(_words(item.document.text)) & set(_words(asking))) - common
    return Answer(
        passage_id=item.document.id,
        passage=_pieces(_excerpt(item.document.text, shared, _PASSAGE_CHARACTERS), shared),
        title=item.document.title,
        rank=item.rank,
        score=item.score,
        matched_count=item.matched_count,
        example_id=item.matched_queries[0] if item.matched_queries else "",
        example=_pieces(_excerpt(asking, shared, _EXAMPLE_CHARACTERS), shared),
        label=str(example.get("label", "")),
        reason=item.reason,
    )


def _text_of(example: Mapping[str, Any]) -> str:
    return " ".join(str(example[key]) for key in ("text", "text_pair") if example.get(key))


def _words(text: str) -> list[str]:
    """Words as retrieval sees them, but for single letters, which tell nothing."""
    return [word for word in words_of(text) if len(word) > 1 or not word.isascii()]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each word begins and ends."""
    kinds = character_classes()[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)]
    place = 0
    for kind, run in groupby(kinds.tolist()):
        end = place + len(list(run))
        if kind == LETTER:
            yield place, end
        elif kind == IDEOGRAPH:
            yield from ((one, one + 1) for one in range(place, end))
        place = end


def _excerpt(text: str, telling: set[str], characters: int) -> str:
    """The stretch of a text that holds most telling words; of equal ones the first."""
    line = " ".join(text.split())
    places = [first for first, last in _spans(line) if fold(line[first:last]) in telling]
    starts = [0, *(_blank_before(line, place - _BEFORE_THE_FIRST) for place in places)]
    start = max(starts, key=lambda first: sum(first <= place < first + characters for place in places))
    return f"… {shorten(line[start:], characters)}" if start else shorten(line, characters)


def _blank_before(line: str, place: int) -> int:
    return line.rfind(" ", 0, max(place, 0)) + 1


def _pieces(text: str, marked: set[str]) -> list[Piece]:
    """The text cut so that each marked word is a piece of its own."""
    pieces, end = [], 0
    for first, last in _spans(text):
        if fold(text[first:last]) in marked:
            pieces += [Piece(text[end:first], False), Piece(text[first:last], True)]
            end = last
    return [piece for piece in [*pieces, Piece(text[end:], False)] if piece.text]
