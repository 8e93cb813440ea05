"""The selection in the report: bytes by source, quality measures, and selected passages with their queries.

A passage next to a query says most where both share words that few train texts have. Such pairs come first. Passages
that repeat their query, or a part of it, are near-copies, which say little about what pre-training adds.
"""

from __future__ import annotations

import heapq
import math
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

SHOWN = 120
"""Best-ranked passages in a report, at most one per query; as many others are spread evenly over the selection."""
_MOST_SOURCES = 12
_MOST_CLASSES = 3
_CANDIDATES = 2000
_COPY_SHARE, _COPY_WORDS = 0.8, 5  # of the shorter text's words in a near-copy; fewer words are shared by chance
_PASSAGE_CHARACTERS, _EXAMPLE_CHARACTERS = 500, 260
_CONTEXT = 40  # characters of an excerpt before a distinctive word
_COMMON_SHARE = 0.05
_TEXTS_FOR_COMMON_WORDS = 2000


@dataclass
class SelectionSummary:
    """Selected passages and bytes by source, and the best-ranked passages."""

    passages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    best: list[Selected] = field(default_factory=list)
    others: list[Selected] = field(default_factory=list)


@dataclass(frozen=True)
class SourceShare:
    """The size of a source and of its part of the selection, which is 0 before the select stage."""

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
    """A selected passage and the example whose query matched it best; without such an example `example_id` is empty.

    `evidence` is the sum of the idf of distinctive words that both share, `classes` counts the labels of the queries
    that match the passage best. In a near-copy, query and passage have most words of the shorter of them in common.
    """

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
    source: str = ""
    evidence: float = 0.0
    classes: tuple[tuple[str, int], ...] = ()
    is_copy: bool = False


def summarize_selection(selected: Iterable[Selected], count: int = 0) -> SelectionSummary:
    """Return the summary of a selection of `count` passages, read once.

    `best` has the best passages, at most one per query; `others` are spread evenly over the selection.
    """
    summary, step = SelectionSummary(), max(1, count // SHOWN)
    spread: list[Selected] = []

    def counted() -> Iterator[Selected]:
        for number, passage in enumerate(selected):
            summary.passages[passage.document.source] += 1
            summary.bytes[passage.document.source] += len(passage.document.text.encode())
            if count and number % step == 0 and len(spread) < SHOWN:
                spread.append(passage)
            yield passage

    ranked = heapq.nsmallest(_CANDIDATES, counted(), key=lambda row: (row.rank, -row.score, row.position))
    by_query: dict[str, Selected] = {}
    for passage in ranked:
        by_query.setdefault(passage.matched_queries[0] if passage.matched_queries else passage.document.id, passage)
    summary.best = list(by_query.values())[:SHOWN]
    positions = {passage.position for passage in summary.best}
    summary.others = [passage for passage in spread if passage.position not in positions]
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
    """Return a chart of each source's share of the corpus and of the selection; None for one source or no selection."""
    total, selected = sum(share.bytes for share in shares), sum(share.selected_bytes for share in shares)
    if len(shares) < 2 or not total or not selected:
        return None
    groups = []
    for source in shares[:_MOST_SOURCES]:
        values = (source.bytes / total, source.selected_bytes / selected)
        groups.append(BarGroup(source.name, values, tuple(shown.share(value) for value in values)))
    return bar_chart(groups, ["of the corpus", "of the selected text"], title="Share of bytes by source")


def corpus_notes(retrieved: dict[str, Any], selected: dict[str, Any], packed: dict[str, Any]) -> list[str]:
    """Return the sentences about files and rows of the corpora that were not read, each once.

    >>> corpus_notes({"corpus": {"notes": ["1 file not read"]}}, {}, {"aligned": {"notes": ["1 file not read"]}})
    ['1 file not read']
    """
    parts = (retrieved.get("corpus", {}), selected.get("domain", {}), packed.get("aligned", {}))
    return list(dict.fromkeys(note for part in parts for note in part.get("notes", ())))


def domain_sentence(counts: dict[str, Any]) -> str:
    """Return a sentence on the passages drawn from the domain; empty if no objective reads them.

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
    """Return the quality measures of the select stage, which need no training; empty if it has none.

    >>> quality_sentence({"quality": {"kl": 1.25, "overlap": {"best_rank": {"share": 0.5, "jaccard": 0.25}}}})
    "KL divergence from the task's n-grams 1.250; 50% also selected by best_rank (Jaccard 0.25)."
    """
    quality = counts.get("quality")
    if not quality:
        return ""
    parts = [f"KL divergence from the task's n-grams {quality['kl']:.3f}"]
    if "kl_reduction" in quality:
        reduction = quality["kl_reduction"]
        difference = f"{abs(reduction):.3f} {'less' if reduction >= 0 else 'more'}"
        parts[0] += f", {difference} than a random draw of that size from the retrieved passages"
    if "label_words" in quality:
        parts.append(_label_words_phrase(quality["label_words"]))
    for name, overlap in quality.get("overlap", {}).items():
        parts.append(f"{shown.share(overlap['share'])} also selected by {name} (Jaccard {overlap['jaccard']:.2f})")
    for pair, overlap in counts.get("fused", {}).items():
        parts.append(f"{pair.replace(', ', ' and ')} agree with a Jaccard index of {overlap['jaccard']:.2f}")
    return f"{'; '.join(parts)}."


def scoring_models_sentence(counts: dict[str, Any]) -> str:
    """Return a sentence on what the scoring models of an influence selection know; empty without them.

    >>> model = {"metric": "accuracy", "score": 0.71, "majority": 0.5, "chance": 0.55, "rows": 90, "informed": True}
    >>> scoring_models_sentence({"influence": {"scoring_models": [model]}})
    'On rows they were not fitted on, the scoring models have accuracy 71.0 (commonest answer 50.0).'
    >>> scoring_models_sentence({})
    ''
    """
    models = counts.get("influence", {}).get("scoring_models", ())
    if not models:
        return ""
    scores = ", ".join(f"{100 * model['score']:.1f}" for model in models)
    majority = ", ".join(dict.fromkeys(f"{100 * model['majority']:.1f}" for model in models))
    text = f"On rows they were not fitted on, the scoring models have {models[0]['metric']} {scores} "
    text += f"(commonest answer {majority})."
    informed = all(model["informed"] for model in models)
    return text if informed else f"{text} That is no better than chance: the selection is close to a random one."


def _label_words_phrase(statistics: dict[str, Any]) -> str:
    share = f"{statistics['share']:.2%} of its words indicate a class"
    if "share_retrieved" in statistics:
        share += f" ({statistics['share_retrieved']:.2%} of what was retrieved)"
    return f"{share}, {statistics['found']:,} of {statistics['words']:,} such words occur in it"


def explain(best: Iterable[Selected], examples: Iterable[Mapping[str, Any]]) -> list[MatchedPair]:
    """Return passages with the texts of their best examples; shared words that few examples contain are highlighted.

    Pairs with most evidence come first.
    """
    best = list(best)
    best_queries = {passage.matched_queries[0] for passage in best if passage.matched_queries}
    wanted = {query for passage in best for query in passage.matched_queries}
    by_id: dict[str, Mapping[str, Any]] = {}
    labels: dict[str, str] = {}
    frequency: Counter[str] = Counter()
    texts = 0
    for example in examples:
        if texts < _TEXTS_FOR_COMMON_WORDS:
            texts += 1
            frequency.update(set(_words(_text_of(example))))
        if example["id"] in best_queries:
            by_id[example["id"]] = example
        if example["id"] in wanted and isinstance(example.get("label"), str):
            labels[example["id"]] = example["label"]
    idf = {
        word: math.log(texts / number) for word, number in frequency.items() if number <= max(1, _COMMON_SHARE * texts)
    }
    pairs = [_pair(passage, by_id, idf, labels) for passage in best]
    return sorted(pairs, key=lambda pair: (pair.is_copy, -pair.evidence))


def _pair(
    passage: Selected, examples: Mapping[str, Mapping[str, Any]], idf: Mapping[str, float], labels: Mapping[str, str]
) -> MatchedPair:
    """Return a passage with its best example; `idf` has the words that few train texts contain."""
    example_id = passage.matched_queries[0] if passage.matched_queries else ""
    example = examples.get(example_id, {})
    query = _text_of(example)
    words, own = set(_words(passage.document.text)), set(_words(query))
    shared = {word for word in words & own if word in idf}
    classes = Counter(labels[query] for query in passage.matched_queries if query in labels)
    return MatchedPair(
        passage_id=passage.document.id,
        passage=_highlighted(_excerpt(passage.document.text, shared, _PASSAGE_CHARACTERS), shared),
        title=passage.document.title,
        rank=passage.rank,
        score=passage.score,
        matched_count=passage.matched_count,
        example_id=example_id,
        example=_highlighted(_excerpt(query, shared, _EXAMPLE_CHARACTERS), shared),
        label=_label_of(example),
        reason=passage.reason,
        source=passage.document.source,
        evidence=sum(idf[word] for word in shared),
        classes=tuple(classes.most_common(_MOST_CLASSES)),
        is_copy=_COPY_WORDS <= min(len(words), len(own)) <= len(words & own) / _COPY_SHARE,
    )


def _label_of(example: Mapping[str, Any]) -> str:
    """Return the label of an example as text; empty for tags, which are too many."""
    label = example.get("label", "")
    return ("" if example.get("tokens") else ", ".join(map(str, label))) if isinstance(label, list) else str(label)


def _text_of(example: Mapping[str, Any]) -> str:
    return " ".join(str(example[key]) for key in ("text", "text_pair") if example.get(key))


def _words(text: str) -> list[str]:
    """Return the words that retrieval uses, without single letters."""
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
    """Return the first excerpt of a text with the most distinctive words."""
    line = " ".join(text.split())
    matches = [first for first, last in _spans(line) if fold(line[first:last]) in distinctive]
    starts = [0, *(_word_start(line, index - _CONTEXT) for index in matches)]
    start = max(starts, key=lambda first: sum(first <= index < first + characters for index in matches))
    return f"… {shown.shorten(line[start:], characters)}" if start else shown.shorten(line, characters)


def _word_start(line: str, index: int) -> int:
    return line.rfind(" ", 0, max(index, 0)) + 1


def _highlighted(text: str, words: set[str]) -> list[TextSpan]:
    """Return the text as spans; those of `words` are highlighted."""
    found = [(first, last) for first, last in _spans(text) if fold(text[first:last]) in words]
    spans, end = [], 0
    for first, last in _joined(text, found):
        spans += [TextSpan(text[end:first], False), TextSpan(text[first:last], True)]
        end = last
    return [span for span in [*spans, TextSpan(text[end:], False)] if span.text]


def _joined(text: str, words: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return words as spans (start, end); those with nothing but spaces between them are one span.

    >>> _joined("red  green, blue", [(0, 3), (5, 10), (12, 16)])
    [(0, 10), (12, 16)]
    """
    spans: list[tuple[int, int]] = []
    for first, last in words:
        if spans and not text[spans[-1][1] : first].strip():
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return spans
