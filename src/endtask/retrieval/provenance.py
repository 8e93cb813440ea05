"""Why a passage was found: the words it shares with those who asked, and the part of the score that each word gives."""

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
from endtask.io.stage_folder import left_out, read_manifest
from endtask.io.tables import read_rows
from endtask.records import Label
from endtask.retrieval.words import words_of

Row = dict[str, Any]
_SHOWN = ("id", "source", "title", "license", "text")


@dataclass(frozen=True)
class QueryWord:
    """A word of a query: how often it stands there, how many passages hold it, and its weight from that."""

    word: str
    in_query: int
    document_frequency: int
    idf: float


@dataclass(frozen=True)
class WordScore:
    """A word that query and passage share, how often it stands in each, and its part of the score."""

    word: str
    idf: float
    in_query: int
    in_passage: int
    part: float


@dataclass(frozen=True)
class QueryExample:
    """Who asked; unlabelled texts that ask are not kept in the run and have neither text nor label here."""

    id: str
    text: str | None
    label: Label | None


@dataclass(frozen=True)
class MatchedQuery:
    """One query: the examples that ask it (equal texts ask together), its score for the passage, and why."""

    examples: tuple[QueryExample, ...]
    score: float
    words: tuple[WordScore, ...]


@dataclass(frozen=True)
class WhyPassage:
    """All that is known of a passage: whether it was kept, who asked for it, and the best of them explained."""

    id: str
    kept: bool
    reason: str
    source: str
    title: str | None
    license: str | None
    text: str
    rank: int
    score: float
    matched_count: int
    matched_queries: tuple[str, ...]
    query_matches: tuple[MatchedQuery, ...]


@dataclass(frozen=True)
class MatchedPassage:
    """A kept passage that an example asked for, with the score it has there."""

    id: str
    source: str
    title: str | None
    license: str | None
    text: str
    score: float
    words: tuple[WordScore, ...]


@dataclass(frozen=True)
class WhyExample:
    """What an example asked with, and the best of the passages that it asked for and that were kept, best first.

    `words` are sorted by weight; `unknown_words` stand in no passage. `retrieved_count` and `kept_count` count the
    passages with this example on record: of each passage, the 20 best askers are.
    """

    example: QueryExample
    words: tuple[QueryWord, ...]
    unknown_words: tuple[str, ...]
    retrieved_count: int
    kept_count: int
    passages: tuple[MatchedPassage, ...]


@dataclass(frozen=True)
class Bm25:
    """BM25 in Lucene's form, over as many passages as were scored, of this mean length in words.

    >>> scorer = Bm25(passages=4, mean_length=2.0, k1=1.2, b=0.75)
    >>> salt = QueryWord("salt", 1, 1, scorer.idf(1))
    >>> [(one.word, round(one.part, 4)) for one in scorer.parts([salt], "Salt, salt.")]
    [('salt', 0.7525)]
    """

    passages: int
    mean_length: float
    k1: float
    b: float

    def idf(self, document_frequency: int) -> float:
        """The weight of a word that this many passages hold."""
        return math.log1p((self.passages - document_frequency + 0.5) / (document_frequency + 0.5))

    def parts(self, query: Iterable[QueryWord], text: str) -> tuple[WordScore, ...]:
        """The words that a query and a passage share, the greatest part of the score first."""
        words = words_of(text)
        held = Counter(words)
        parts = [
            WordScore(asked.word, asked.idf, asked.in_query, times, self._part(asked, times, len(words)))
            for asked in query
            if (times := held[asked.word])
        ]
        return tuple(sorted(parts, key=lambda one: (-one.part, one.word)))

    def _part(self, asked: QueryWord, times: int, length: int) -> float:
        saturation = self.k1 * (1 - self.b + self.b * length / self.mean_length)
        return asked.in_query * asked.idf * times / (times + saturation)


def why_passage(run: Path, passage_id: str, *, top: int = 3) -> WhyPassage:
    """Explain a passage of a run, and the `top` queries that ranked it best."""
    _require_stages(run)
    retrieved, selection = run / "retrieve" / RETRIEVED, run / "select" / SELECTION
    kept = next(rows_where(selection, "id", {passage_id}), None)
    # Ranks and scores of the kept are their selector's; the table of the retrieved has BM25's, and all who asked.
    row = next(rows_where(retrieved, "id", {passage_id}), kept)
    if row is None:
        raise _unknown_passage(run, passage_id, (retrieved, selection))
    matched_queries = tuple(row["matched_queries"] or ())
    return WhyPassage(
        kept=kept is not None,
        reason=(kept or row)["reason"],
        matched_queries=matched_queries,
        query_matches=_query_matches(run, row["text"], matched_queries, top) if matched_queries else (),
        **{key: row[key] for key in (*_SHOWN, "rank", "score", "matched_count")},
    )


def why_example(run: Path, example_id: str, *, top: int = 10) -> WhyExample:
    """Explain what an example asked with, and the `top` best of the kept passages that it asked for."""
    _require_stages(run)
    scorer = _scorer(run)
    query = next(_queries_of(run, [example_id]), None)
    example = _examples(run, {example_id})[example_id]
    if query is None and example.text is None:
        raise _unknown_example(run, example_id)
    if query is None:
        return WhyExample(example, (), (), 0, 0, ())
    words = _query_words(run, query["words"], scorer)
    known = {one.word for one in words}
    unknown = tuple(dict.fromkeys(word for word in query["words"] if word not in known))
    # Any of the examples with this very text may be the one on record.
    retrieved = rows_where(run / "retrieve" / RETRIEVED, "matched_queries", query["example_ids"], ["id"])
    asked = {row["id"] for row in retrieved}
    rows = list(rows_where(run / "select" / SELECTION, "id", asked, [*_SHOWN, "position"]))
    best = heapq.nsmallest(top, rows, key=lambda row: (-_score(scorer.parts(words, row["text"])), row["position"]))
    passages = tuple(_asked_passage(row, scorer.parts(words, row["text"])) for row in best)
    return WhyExample(example, words, unknown, len(asked), len(rows), passages)


def _query_matches(run: Path, text: str, matched_queries: tuple[str, ...], top: int) -> tuple[MatchedQuery, ...]:
    """The best queries for a passage, explained; those who asked are given best first."""
    place = {example_id: number for number, example_id in enumerate(matched_queries)}
    queries = [
        (sorted(place[one] for one in row["example_ids"] if one in place), row["words"])
        for row in _queries_of(run, matched_queries)
    ]
    best = sorted(queries)[:top]
    examples = _examples(run, {matched_queries[number] for numbers, _ in best for number in numbers})
    scorer = _scorer(run)
    query_matches = []
    for numbers, words in best:
        parts = scorer.parts(_query_words(run, words, scorer), text)
        query_matches.append(
            MatchedQuery(tuple(examples[matched_queries[number]] for number in numbers), _score(parts), parts)
        )
    return tuple(query_matches)


def _asked_passage(row: Row, parts: tuple[WordScore, ...]) -> MatchedPassage:
    return MatchedPassage(**{key: row[key] for key in _SHOWN}, score=_score(parts), words=parts)


def _score(parts: Iterable[WordScore]) -> float:
    return math.fsum(one.part for one in parts)


def _queries_of(run: Path, example_ids: Collection[str]) -> Iterator[Row]:
    """The queries that these examples ask, each once."""
    return rows_where(run / "retrieve" / QUERIES, "example_ids", example_ids)


def _query_words(run: Path, words: Iterable[str], scorer: Bm25) -> tuple[QueryWord, ...]:
    """The words of a query that the corpus holds, the rarest first."""
    times = Counter(words)
    rows = rows_where(run / "retrieve" / QUERY_WORDS, "word", times)
    frequencies = {row["word"]: row["document_frequency"] for row in rows}
    held = [QueryWord(word, times[word], number, scorer.idf(number)) for word, number in frequencies.items()]
    return tuple(sorted(held, key=lambda one: (-one.idf, one.word)))


def _scorer(run: Path) -> Bm25:
    manifest = read_manifest(run / "retrieve") or {}
    counts = manifest.get("counts", {})
    if not counts.get("passages"):
        raise InputError("this run retrieved nothing", path=run)
    try:
        return Bm25(counts["passages_scored"], counts["mean_length"], counts["k1"], counts["b"])
    except KeyError as missing:
        hint = f"made by an older endtask? redo it: endtask run {run} --from retrieve"
        raise InputError(f"the stage retrieve did not record {missing}", path=run, hint=hint) from None


def _examples(run: Path, wanted: Collection[str]) -> dict[str, QueryExample]:
    """The train examples with these ids; one without text where there is none."""
    found = {example_id: QueryExample(example_id, None, None) for example_id in wanted}
    left = set(wanted)
    for _, row in read_rows(run / "read" / "train.jsonl"):
        if row["id"] in left:
            text = " ".join(row[key] for key in ("text", "text_pair") if row.get(key))
            found[row["id"]] = QueryExample(row["id"], text, row.get("label"))
            left.remove(row["id"])
        if not left:
            break
    return found


def _unknown_passage(run: Path, passage_id: str, tables: Iterable[Path]) -> InputError:
    import pyarrow as arrow

    near = [found for table in tables if (found := nearest_value(table, "id", passage_id))]
    nearest = nearest_of(arrow.array(near, arrow.string()), passage_id)
    hint = f"nearest: {nearest!r}" if nearest else "this run retrieved nothing"
    return InputError(f"{passage_id!r} was not retrieved", path=run, hint=hint)


def _unknown_example(run: Path, example_id: str) -> InputError:
    import pyarrow as arrow

    for split in ("dev", "test"):
        path = run / "read" / f"{split}.jsonl"
        if path.exists() and any(row["id"] == example_id for _, row in read_rows(path)):
            return InputError(f"{example_id!r} is a {split} example", path=run, hint="only train texts ask")
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
            raise InputError(message, path=run, hint="ask there")
