"""The corpus and what was kept of it, source by source.

What a selection is worth before training, in a sentence.

Why these texts: what was kept of each source, and the best passages beside the examples that asked for them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup

from endtask.records import Selected
from endtask.reporting import format as shown
from endtask.reporting.costs import less_of_domain
from endtask.reporting.format import shorten
from endtask.reporting.plots import BarGroup, bar_chart
from endtask.retrieval.words import IDEOGRAPH, LETTER, character_classes, fold, words_of

_SOURCES_DRAWN = 12


@dataclass(frozen=True)
class SourceShare:
    """One source: what it held and what of it is trained on (nothing known before selection)."""

    name: str
    documents: int
    duplicates: int
    passages: int
    bytes: int
    kept_passages: int
    kept_bytes: int


def source_shares(corpus: dict[str, Any], kept: Kept) -> list[SourceShare]:
    """Every source, the largest first."""
    shares = [
        SourceShare(
            name,
            source["documents"],
            source["duplicates"],
            source["passages"],
            source["bytes"],
            kept.passages[name],
            kept.bytes[name],
        )
        for name, source in corpus.get("sources", {}).items()
    ]
    return sorted(shares, key=lambda share: (-share.bytes, share.name))


def source_chart(shares: list[SourceShare]) -> Markup | None:
    """Each source's part of the corpus beside its part of what was kept; none for a single source or no selection."""
    total, kept = sum(share.bytes for share in shares), sum(share.kept_bytes for share in shares)
    if len(shares) < 2 or not total or not kept:
        return None
    groups = []
    for source in shares[:_SOURCES_DRAWN]:
        parts = (source.bytes / total, source.kept_bytes / kept)
        groups.append(BarGroup(source.name, parts, tuple(shown.share(part) for part in parts)))
    return bar_chart(groups, ["of the corpus", "of the kept text"], title="Share of bytes by source")


def domain_sentence(counts: dict[str, Any]) -> str:
    """What was drawn of the task's domain, where an objective reads it.

    >>> domain_sentence({"domain": {"passages": 8, "bytes": 2000, "of_passages": 90, "sources": ["news", "books"]}})
    '8 passages (2 kB) of the domain (books, news) were drawn at random, of 90 that it has.'
    >>> domain_sentence({})
    ''
    """
    if "domain" not in counts:
        return ""
    drawn = counts["domain"]
    passages = f"{shown.plural(drawn['passages'], 'passage')} ({shown.size(drawn['bytes'])})"
    sources = ", ".join(sorted(drawn["sources"]))
    of_all = f"of {drawn['of_passages']:,} that it has{less_of_domain(drawn)}"
    return f"{passages} of the domain ({sources}) were drawn at random, {of_all}."


def quality_sentence(counts: dict[str, Any]) -> str:
    """The figures of the select stage that need no training; empty where it found none.

    >>> quality_sentence({"quality": {"kl": 1.25, "overlap": {"best_rank": {"share": 0.5, "jaccard": 0.25}}}})
    "KL divergence from the task's n-grams 1.250; 50% also kept by best_rank (Jaccard 0.25)."
    """
    quality = counts.get("quality")
    if not quality:
        return ""
    parts = [f"KL divergence from the task's n-grams {quality['kl']:.3f}"]
    if "kl_reduction" in quality:
        parts[0] += f", {_less(quality['kl_reduction'])} than of a random draw of that size from what was retrieved"
    if "label_words" in quality:
        parts.append(_label_words(quality["label_words"]))
    for name, overlap in quality.get("overlap", {}).items():
        parts.append(f"{shown.share(overlap['share'])} also kept by {name} (Jaccard {overlap['jaccard']:.2f})")
    for pair, overlap in counts.get("fused", {}).items():
        parts.append(f"{pair.replace(', ', ' and ')} alone would agree by a Jaccard index of {overlap['jaccard']:.2f}")
    return f"{'; '.join(parts)}."


def _less(reduction: float) -> str:
    return f"{abs(reduction):.3f} {'less' if reduction >= 0 else 'more'}"


def _label_words(statistics: dict[str, Any]) -> str:
    of_all = f" ({statistics['share_retrieved']:.2%} of what was retrieved)" if "share_retrieved" in statistics else ""
    return (
        f"{statistics['share']:.2%} of its words tell a class{of_all}, "
        f"{statistics['found']:,} of {statistics['words']:,} such words are in it"
    )


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
