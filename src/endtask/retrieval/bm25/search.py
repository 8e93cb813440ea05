"""Bulk BM25 as a library call: many queries, one corpus, the best passages of each query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.io.machine import usable_cores
from endtask.io.processes import run_lock
from endtask.retrieval.bm25.rankings import Rankings
from endtask.retrieval.bm25.score import number_terms, rank_passages
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from endtask.retrieval.words import words_of


def search(
    corpus: Corpus,
    queries: Sequence[str],
    *,
    top_k: int,
    folder: Path,
    k1: float = 1.2,
    b: float = 0.75,
    workers: int | None = None,
) -> Rankings:
    """Rank the passages of `corpus` for every query; `folder` holds the scratch files and the rankings.

    Scores are exact BM25 (Lucene's form). A passage is identified by its index in `corpus.documents()`. A ranking omits
    passages that share no word with its query; ties are in corpus order. A second call resumes a killed one.
    """
    for name, value, least in (("top_k", top_k, 1), ("k1", k1, 0), ("b", b, 0), ("workers", workers or 1, 1)):
        if not value >= least:
            raise InputError(f"must be at least {least}", key=name)
    if b > 1:
        raise InputError("must be at most 1", key="b")
    folder.mkdir(parents=True, exist_ok=True)
    with run_lock(folder):
        return _search(corpus, queries, top_k, folder, k1, b, workers or usable_cores())


def _search(
    corpus: Corpus, queries: Sequence[str], top_k: int, folder: Path, k1: float, b: float, workers: int
) -> Rankings:
    query_words = [words_of(query) for query in queries]
    spec = ScanSpec.of(word for words in query_words for word in words)
    joined = read_corpus(corpus, spec, folder / "shards", workers=workers)
    terms = number_terms(spec.words, query_words)
    return rank_passages(joined, terms, folder / "rankings", top_k=top_k, k1=k1, b=b, workers=workers)
