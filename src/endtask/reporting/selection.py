"""The selection in the report: bytes by source, quality measures, and selected passages next to their queries."""

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
from endtask.reporting.plots import BarGroup, bar_chart
from endtask.retrieval.words import IDEOGRAPH, LETTER, character_classes, fold, words_of

SHOWN = 6
_SOURCES_DRAWN = 12
_CANDIDATES = 200
_PASSAGE_CHARACTERS, _EXAMPLE_CHARACTERS = 420, 280
_BEFORE_THE_FIRST = 40  # characters shown before the first distinctive word
_COMMON_SHARE = 0.05
_TEXTS_FOR_COMMON_WORDS = 2000


@dataclass
class SelectionSummary:
    """Selected passages and bytes by source, and the best-ranked passages."""

    passages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    best: list[Selected] = field(default_factory=list)


@dataclass(frozen=True)
class SourceShare:
    """The size of one source and of its part of the selection, which is 0 before the select stage."""

    name: str
    documents: int
    duplicates: int
    passages: int
    bytes: int
    selected_passages: int
    selected_bytes: int


@dataclass(frozen=True)
class TextSpan:
    """A span of text, highlighted if it is a distinctive word that passage and example share."""

    text: str
    highlighted: bool


@dataclass(frozen=True)
class MatchedPair:
    """A selected passage and the example whose query matched it best; `example_id` is empty if there is none."""

    passage_id: str
    passage: list[TextSpan]
    title: str | None
    rank: int
    score: float
    matched_count: int
    example_id: str
    example: list[TextSpan]
    label: str
    reason: str


def summarize_selection(selected: Iterable[Selected]) -> SelectionSummary:
    """Read a selection once; `best` contains at most one passage, the best, per best-matching example."""
    summary = SelectionSummary()

    def counted() -> Iterator[Selected]:
        for item in selected:
            summary.passages[item.document.source] += 1
            summary.bytes[item.document.source] += len(item.document.text.encode())
            yield item

    ranked = heapq.nsmallest(_CANDIDATES, counted(), key=lambda item: (item.rank, -item.score, item.position))
    by_query: dict[str, Selected] = {}
    for item in ranked:
        by_query.setdefault(item.matched_queries[0] if item.matched_queries else item.document.id, item)
    summary.best = list(by_query.values())[:SHOWN]
    return summary


def source_shares(corpus: dict[str, Any], selection: SelectionSummary) -> list[SourceShare]:
    """Return every source, the largest first."""
    shares = [
        SourceShare(
            name,
            source["documents"],
            source["duplicates"],
            source["passages"],
            source["bytes"],
            selection.passages[name],
            selection.bytes[name],
        )
        for name, source in corpus.get("sources", {}).items()
    ]
    return sorted(shares, key=lambda share: (-share.bytes, share.name))


def source_chart(shares: list[SourceShare]) -> Markup | None:
    """Draw each source's share of the corpus and of the selection; None for a single source or no selection."""
    total, selected = sum(share.bytes for share in shares), sum(share.selected_bytes for share in shares)
    if len(shares) < 2 or not total or not selected:
        return None
    groups = []
    for source in shares[:_SOURCES_DRAWN]:
        parts = (source.bytes / total, source.selected_bytes / selected)
        groups.append(BarGroup(source.name, parts, tuple(shown.share(part) for part in parts)))
    return bar_chart(groups, ["of the corpus", "of the selected text"], title="Share of bytes by source")


def domain_sentence(counts: dict[str, Any]) -> str:
    """Describe the passages drawn from the task's domain, if an objective reads them.

    >>> domain_sentence({"domain": {"passages": 8, "bytes": 2000, "of_passages": 90, "sources": ["news", "books"]}})
    '8 of 90 passages (2 kB) of the domain (books, news) were drawn at random.'
    >>> domain_sentence({})
    ''
    """
    if "domain" not in counts:
        return ""
    drawn = counts["domain"]
    passages = (
        f"{drawn['passages']:,} of {shown.plural(drawn['of_passages'], 'passage')} ({shown.size(drawn['bytes'])})"
    )
    sources = ", ".join(sorted(drawn["sources"]))
    return f"{passages} of the domain ({sources}) were drawn at random{less_of_domain(drawn)}."


def quality_sentence(counts: dict[str, Any]) -> str:
    """Describe the quality measures of the select stage that need no training; empty if it has none.

    >>> quality_sentence({"quality": {"kl": 1.25, "overlap": {"best_rank": {"share": 0.5, "jaccard": 0.25}}}})
    "KL divergence from the task's n-grams 1.250; 50% also selected by best_rank (Jaccard 0.25)."
    """
    quality = counts.get("quality")
    if not quality:
        return ""
    parts = [f"KL divergence from the task's n-grams {quality['kl']:.3f}"]
    if "kl_reduction" in quality:
        parts[0] += f", {_less(quality['kl_reduction'])} than a random draw of that size from the retrieved passages"
    if "label_words" in quality:
        parts.append(_label_words(quality["label_words"]))
    for name, overlap in quality.get("overlap", {}).items():
        parts.append(f"{shown.share(overlap['share'])} also selected by {name} (Jaccard {overlap['jaccard']:.2f})")
    for pair, overlap in counts.get("fused", {}).items():
        parts.append(f"{pair.replace(', ', ' and ')} agree with a Jaccard index of {overlap['jaccard']:.2f}")
    return f"{'; '.join(parts)}."


def _less(reduction: float) -> str:
    return f"{abs(reduction):.3f} {'less' if reduction >= 0 else 'more'}"


def _label_words(statistics: dict[str, Any]) -> str:
    of_all = f" ({statistics['share_retrieved']:.2%} of what was retrieved)" if "share_retrieved" in statistics else ""
    return (
        f"{statistics['share']:.2%} of its words indicate a class{of_all}, "
        f"{statistics['found']:,} of {statistics['words']:,} such words occur in it"
    )


def explain(best: Iterable[Selected], examples: Iterable[Mapping[str, Any]]) -> list[MatchedPair]:
    """Pair passages with the texts of their best examples; highlights shared words that few examples contain."""
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
        _pair(item, found.get(item.matched_queries[0], {}) if item.matched_queries else {}, common) for item in best
    ]


def _pair(item: Selected, example: Mapping[str, Any], common: set[str]) -> MatchedPair:
    query = _text_of(example)
    shared = (set(_words(item.document.text)) & set(_words(query))) - common
    return MatchedPair(
        passage_id=item.document.id,
        passage=_highlighted(_excerpt(item.document.text, shared, _PASSAGE_CHARACTERS), shared),
        title=item.document.title,
        rank=item.rank,
        score=item.score,
        matched_count=item.matched_count,
        example_id=item.matched_queries[0] if item.matched_queries else "",
        example=_highlighted(_excerpt(query, shared, _EXAMPLE_CHARACTERS), shared),
        label=str(example.get("label", "")),
        reason=item.reason,
    )


def _text_of(example: Mapping[str, Any]) -> str:
    return " ".join(str(example[key]) for key in ("text", "text_pair") if example.get(key))


def _words(text: str) -> list[str]:
    """Return the words of retrieval without single letters."""
    return [word for word in words_of(text) if len(word) > 1 or not word.isascii()]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each word."""
    kinds = character_classes()[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)]
    start = 0
    for kind, run in groupby(kinds.tolist()):
        end = start + len(list(run))
        if kind == LETTER:
            yield start, end
        elif kind == IDEOGRAPH:
            yield from ((index, index + 1) for index in range(start, end))
        start = end


def _excerpt(text: str, distinctive: set[str], characters: int) -> str:
    """Return the excerpt of a text with the most distinctive words; of equal excerpts the first."""
    line = " ".join(text.split())
    matches = [first for first, last in _spans(line) if fold(line[first:last]) in distinctive]
    starts = [0, *(_blank_before(line, index - _BEFORE_THE_FIRST) for index in matches)]
    start = max(starts, key=lambda first: sum(first <= index < first + characters for index in matches))
    return f"… {shown.shorten(line[start:], characters)}" if start else shown.shorten(line, characters)


def _blank_before(line: str, index: int) -> int:
    return line.rfind(" ", 0, max(index, 0)) + 1


def _highlighted(text: str, words: set[str]) -> list[TextSpan]:
    """Split the text so that each of `words` is a highlighted span of its own."""
    spans, end = [], 0
    for first, last in _spans(text):
        if fold(text[first:last]) in words:
            spans += [TextSpan(text[end:first], False), TextSpan(text[first:last], True)]
            end = last
    return [span for span in [*spans, TextSpan(text[end:], False)] if span.text]
