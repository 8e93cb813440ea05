"""The retrieve stage: every train text asks the corpus, and the union of the answers is written with its reasons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from endtask.corpus import Corpus
from endtask.files.selection_table import write_selection
from endtask.progress import bar
from endtask.records import Selected
from endtask.retrieve.engine import Bm25sEngine
from endtask.retrieve.guard import guarded_positions
from endtask.retrieve.queries import Query, build_queries, papers_top_k
from endtask.retrieve.who_asked import WhoAsked
from endtask.retrieve.words import Vocabulary, WordStream, number_words
from endtask.settings import RetrieveSettings
from endtask.task import Task, remove_entity_marks

RETRIEVED = "retrieved.parquet"


def retrieve(task: Task, corpus: Corpus | None, settings: RetrieveSettings, folder: Path) -> dict[str, Any]:
    """Write the retrieved passages; returns counts for the manifest. Without a corpus nothing is retrieved."""
    if corpus is None:
        write_selection(folder / RETRIEVED, [])
        return {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
    vocabulary = Vocabulary()
    words = read_words(corpus, vocabulary)
    dropped = guard(task, corpus, words, vocabulary) if settings.guard else set()
    queries = build_queries(task.train)
    top_k = settings.top_k if settings.top_k != "auto" else papers_top_k(len(task.train))
    who = rank_all(queries, words, vocabulary, dropped, top_k=top_k, k1=settings.k1, b=settings.b)
    written = write_selection(folder / RETRIEVED, _retrieved(corpus, who, queries))
    total = corpus.statistics.total
    return {
        "passages": written,
        "queries": len(queries),
        "top_k": top_k,
        "dropped_by_guard": len(dropped),
        "corpus": {"passages": total.passages, "bytes": total.bytes, "sources": corpus.statistics.to_dict()},
    }


def read_words(corpus: Corpus, vocabulary: Vocabulary) -> WordStream:
    """First pass over the corpus: its words as numbers."""
    with bar("read corpus", corpus.files_bytes() or None, unit="bytes") as advance:
        return number_words((document.text for document in corpus.documents(progress=advance)), vocabulary)


def guard(task: Task, corpus: Corpus, words: WordStream, vocabulary: Vocabulary) -> set[int]:
    """Positions of the passages that contain a dev or test text."""
    guarded = (
        form
        for split in ("dev", "test")
        for example in task.splits.get(split, ())
        for text in (example.text, example.text_pair)
        if text
        # Some marks are words themselves (`<e1>`): the text may stand in the corpus with them or without.
        for form in {text, remove_entity_marks(text)}
    )

    def texts_at(positions: set[int]) -> Iterator[tuple[int, str]]:
        if positions:
            documents = enumerate(corpus.documents())
            yield from ((position, document.text) for position, document in documents if position in positions)

    return guarded_positions(guarded, words, vocabulary, texts_at)


def rank_all(
    queries: list[Query],
    words: WordStream,
    vocabulary: Vocabulary,
    dropped: set[int],
    *,
    top_k: int,
    k1: float,
    b: float,
) -> WhoAsked:
    """Rank the passages that the guard left for every query."""
    kept = np.ones(len(words), dtype=bool)
    kept[list(dropped)] = False
    positions = np.flatnonzero(kept)
    engine = Bm25sEngine(words.take(kept), vocabulary, k1=k1, b=b)
    who = WhoAsked(len(words))
    rankings = engine.rank((vocabulary.known(query.text) for query in queries), top_k)
    with bar("rank passages", len(queries)) as advance:
        for number, (query, ranking) in enumerate(zip(queries, rankings, strict=True)):
            who.add(number, query, ranking.moved(positions))
            advance(1)
    return who


def _retrieved(corpus: Corpus, who: WhoAsked, queries: list[Query]) -> Iterator[Selected]:
    """Second pass over the corpus: the passages somebody asked for, in corpus order."""
    for position, document in enumerate(corpus.documents()):
        if who.asked_count[position]:
            rank, score = who.best(position)
            asked_count, asked_by = int(who.asked_count[position]), who.asked(position, queries)
            yield Selected(document, position, rank, score, asked_count, asked_by, "retrieved")
