"""Provenance: the queries that retrieved a passage, the words they share, and the contribution of each to the score."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.parquet_lookup import nearest_of, nearest_value, rows_where
from endtask.io.run_layout import QUERIES, QUERY_WORDS, RETRIEVED, SELECTION, SETTINGS_FILE
from endtask.io.stage_files import check_stage, read_manifest
from endtask.io.stage_folder import left_out
from endtask.io.tables import read_rows
from endtask.records import Label
from endtask.retrieval.words import words_of

Row = dict[str, Any]
_SHOWN = ("id", "source", "title", "license", "text")


@dataclass(frozen=True)
class QueryWord:
    """A word of a query: its count in the query, the number of passages that contain it, and its idf."""

    word: str
    in_query: int
    document_frequency: int
    idf: float


@dataclass(frozen=True)
class WordScore:
    """A word that query and passage share, its count in each, and its contribution to the score."""

    word: str
    idf: float
    in_query: int
    in_passage: int
    score: float


@dataclass(frozen=True)
class QueryExample:
    """The train example of a query."""

    id: str
    text: str
    label: Label


@dataclass(frozen=True)
class MatchedQuery:
    """A query with its examples (equal texts share a query), its score for the passage, and the score of each word."""

    examples: tuple[QueryExample, ...]
    score: float
    words: tuple[WordScore, ...]


@dataclass(frozen=True)
class WhyPassage:
    """A retrieved passage: whether it was selected, its matched queries, and the explanation of the best of them."""

    id: str
    selected: bool
    reason: str
    source: str
    title: str | None
    license: str | None
    text: str
    rank: int
    score: float
    matched_count: int
    matched_queries: tuple[str, ...]
    explained_queries: tuple[MatchedQuery, ...]


@dataclass(frozen=True)
class MatchedPassage:
    """A selected passage that matches an example, with its score for that query."""

    id: str
    source: str
    title: str | None
    license: str | None
    text: str
    score: float
    words: tuple[WordScore, ...]


@dataclass(frozen=True)
class WhyExample:
    """The query of an example, and the selected passages that match it best, best first.

    `words` are sorted by idf; `unknown_words` occur in no passage. `retrieved_count` and `selected_count` count the
    passages that list this example among their matched queries; a run stores the best 20 of each passage.
    """

    example: QueryExample
    words: tuple[QueryWord, ...]
    unknown_words: tuple[str, ...]
    retrieved_count: int
    selected_count: int
    passages: tuple[MatchedPassage, ...]


@dataclass(frozen=True)
class Bm25Scorer:
    """BM25 in Lucene's form for a number of scored passages with this mean length in words.

    >>> scorer = Bm25Scorer(passages=4, mean_length=2.0, k1=1.2, b=0.75)
    >>> salt = QueryWord("salt", 1, 1, scorer.idf(1))
    >>> [(shared.word, round(shared.score, 4)) for shared in scorer.word_scores([salt], "Salt, salt.")]
    [('salt', 0.7525)]
    """

    passages: int
    mean_length: float
    k1: float
    b: float

    def idf(self, document_frequency: int) -> float:
        """Return the idf of a word that this many passages contain."""
        return math.log1p((self.passages - document_frequency + 0.5) / (document_frequency + 0.5))

    def word_scores(self, query: Iterable[QueryWord], text: str) -> tuple[WordScore, ...]:
        """Return the words that a query and a passage share, the largest contribution to the score first."""
        words = words_of(text)
        counts = Counter(words)
        scores = [
            WordScore(word.word, word.idf, word.in_query, count, self._score(word, count, len(words)))
            for word in query
            if (count := counts[word.word])
        ]
        return tuple(sorted(scores, key=lambda score: (-score.score, score.word)))

    def _score(self, word: QueryWord, count: int, length: int) -> float:
        saturation = self.k1 * (1 - self.b + self.b * length / self.mean_length)
        return word.in_query * word.idf * count / (count + saturation)


def why_passage(run: Path, passage_id: str, *, top: int = 3) -> WhyPassage:
    """Explain a passage of a run, and the `top` queries that ranked it best."""
    _require_stages(run)
    retrieved, selection = run / "retrieve" / RETRIEVED, run / "select" / SELECTION
    selected = next(rows_where(selection, "id", {passage_id}), None)
    # The selection has the ranks and scores of its selector, the retrieved table those of BM25, and all queries.
    row = next(rows_where(retrieved, "id", {passage_id}), selected)
    if row is None:
        raise _unknown_passage(run, passage_id, (retrieved, selection))
    matched_queries = tuple(row["matched_queries"] or ())
    explained = _explain_queries(run, row["text"], matched_queries, top) if matched_queries else ()
    return WhyPassage(
        selected=selected is not None,
        reason=(selected or row)["reason"],
        matched_queries=matched_queries,
        explained_queries=explained,
        **{key: row[key] for key in (*_SHOWN, "rank", "score", "matched_count")},
    )


def why_example(run: Path, example_id: str, *, top: int = 10) -> WhyExample:
    """Explain the query of an example, and the `top` selected passages that match it best."""
    _require_stages(run)
    scorer = _scorer(run)
    query = next(_queries_of(run, [example_id]), None)
    example = _examples(run, {example_id}).get(example_id)
    if example is None:
        raise _unknown_example(run, example_id)
    if query is None:
        return WhyExample(example, (), (), 0, 0, ())
    words = _query_words(run, query["words"], scorer)
    known = {word.word for word in words}
    unknown = tuple(dict.fromkeys(word for word in query["words"] if word not in known))
    # A passage may list any of the examples that share this query.
    retrieved = rows_where(run / "retrieve" / RETRIEVED, "matched_queries", query["example_ids"], ["id"])
    matched = {row["id"] for row in retrieved}
    rows = list(rows_where(run / "select" / SELECTION, "id", matched, [*_SHOWN, "position"]))
    scores = [scorer.word_scores(words, row["text"]) for row in rows]
    best = heapq.nsmallest(top, range(len(rows)), key=lambda index: (-_sum(scores[index]), rows[index]["position"]))
    passages = tuple(_matched_passage(rows[index], scores[index]) for index in best)
    return WhyExample(example, words, unknown, len(matched), len(rows), passages)


def passages_for(run: Path, text: str, rows: Iterable[Row], *, top: int = 10) -> tuple[MatchedPassage, ...]:
    """Return the `top` passages that match a text best; only words that occur in some query of the run count."""
    scorer = _scorer(run)
    words = _query_words(run, words_of(text), scorer)
    scored = ((row, scores) for row in rows if (scores := scorer.word_scores(words, row["text"])))
    best = heapq.nsmallest(top, scored, key=lambda pair: (-_sum(pair[1]), pair[0]["position"]))
    return tuple(_matched_passage(row, scores) for row, scores in best)


def _explain_queries(run: Path, text: str, matched_queries: tuple[str, ...], top: int) -> tuple[MatchedQuery, ...]:
    """Explain the `top` queries of a passage; `matched_queries` are example ids, best first."""
    order = {example_id: number for number, example_id in enumerate(matched_queries)}
    queries = [
        (sorted(order[example_id] for example_id in row["example_ids"] if example_id in order), row["words"])
        for row in _queries_of(run, matched_queries)
    ]
    best = sorted(queries)[:top]
    examples = _examples(run, {matched_queries[number] for numbers, _ in best for number in numbers})
    scorer = _scorer(run)
    explained = []
    for numbers, words in best:
        scores = scorer.word_scores(_query_words(run, words, scorer), text)
        explained.append(
            MatchedQuery(tuple(examples[matched_queries[number]] for number in numbers), _sum(scores), scores)
        )
    return tuple(explained)


def _matched_passage(row: Row, scores: tuple[WordScore, ...]) -> MatchedPassage:
    return MatchedPassage(**{key: row[key] for key in _SHOWN}, score=_sum(scores), words=scores)


def _sum(scores: Iterable[WordScore]) -> float:
    return math.fsum(word.score for word in scores)


def _queries_of(run: Path, example_ids: Collection[str]) -> Iterator[Row]:
    """Yield the queries of these examples, each once."""
    return rows_where(run / "retrieve" / QUERIES, "example_ids", example_ids)


def _query_words(run: Path, words: Iterable[str], scorer: Bm25Scorer) -> tuple[QueryWord, ...]:
    """Return the words of a query that occur in the corpus, the rarest first."""
    counts = Counter(words)
    rows = rows_where(run / "retrieve" / QUERY_WORDS, "word", counts)
    frequencies = {row["word"]: row["document_frequency"] for row in rows}
    known = [QueryWord(word, counts[word], number, scorer.idf(number)) for word, number in frequencies.items()]
    return tuple(sorted(known, key=lambda word: (-word.idf, word.word)))


def _scorer(run: Path) -> Bm25Scorer:
    manifest = read_manifest(run / "retrieve") or {}
    counts = manifest.get("counts", {})
    if not counts.get("passages"):
        raise InputError("this run retrieved nothing", path=run)
    try:
        return Bm25Scorer(counts["passages_scored"], counts["mean_length"], counts["k1"], counts["b"])
    except KeyError as missing:
        hint = f"run the stage again: endtask run {run} --from retrieve"
        raise InputError(f"the stage retrieve did not record {missing}", path=run, hint=hint) from None


def _examples(run: Path, ids: Collection[str]) -> dict[str, QueryExample]:
    """Return the train examples with these ids."""
    examples = {}
    for _, row in read_rows(run / "read" / "train.jsonl"):
        if row["id"] in ids:
            text = " ".join(row[key] for key in ("text", "text_pair") if row.get(key))
            examples[row["id"]] = QueryExample(row["id"], text, row["label"])
        if len(examples) == len(ids):
            break
    return examples


def _unknown_passage(run: Path, passage_id: str, tables: Iterable[Path]) -> InputError:
    import pyarrow as arrow

    candidates = [value for table in tables if (value := nearest_value(table, "id", passage_id))]
    nearest = nearest_of(arrow.array(candidates, arrow.string()), passage_id)
    hint = f"nearest: {nearest!r}" if nearest else "this run retrieved nothing"
    return InputError(f"{passage_id!r} was not retrieved", path=run, hint=hint)


def _unknown_example(run: Path, example_id: str) -> InputError:
    import pyarrow as arrow

    for split in ("dev", "test"):
        path = run / "read" / f"{split}.jsonl"
        if path.exists() and any(row["id"] == example_id for _, row in read_rows(path)):
            return InputError(f"{example_id!r} is a {split} example", path=run, hint="only train texts are queries")
    known = [row["id"] for _, row in read_rows(run / "read" / "train.jsonl")]
    hint = f"nearest: {nearest_of(arrow.array(known, arrow.string()), example_id)!r}"
    return InputError(f"no train example {example_id!r}", path=run, hint=hint)


def _require_stages(run: Path) -> None:
    if not (run / SETTINGS_FILE).exists():
        raise InputError("no run here", path=run, hint="endtask retrieve --output FOLDER makes one")
    for stage in ("read", "retrieve", "select"):
        if read_manifest(run / stage) is None:
            hint = f"finish it first: endtask run {run} --until select"
            raise InputError(f"the stage {stage} has not finished", path=run, hint=hint)
        if left_out(run / stage):
            message = f"the files of the stage {stage} stayed on the machine where the bundle was made"
            raise InputError(message, path=run, hint="run this command there")
        check_stage(run / stage)
