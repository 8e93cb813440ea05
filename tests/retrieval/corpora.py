"""Small corpora, all their passages as retrieval reads them, and BM25 scores of another library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from endtask.corpus import Corpus
from endtask.corpus.sources import find_sources, parse_source
from endtask.executors.processes import LocalExecutor
from endtask.retrieval.bm25.join import JoinedCorpus
from endtask.retrieval.bm25.rankings import Ranking, Rankings
from endtask.retrieval.matched_queries import MatchedPassages, fetch_passages, locate_matches
from endtask.retrieval.words import words_of

Row = Mapping[str, Any]


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_files(folder: Path, files: Iterable[Iterable[Row]]) -> Path:
    """Write the files of a source named `c`, in order."""
    for number, rows in enumerate(files):
        write_rows(folder / f"c-{number:02}.jsonl", rows)
    return folder


def text_corpus(folder: Path, texts: Sequence[str], *, cuts: Sequence[int] = (), deduplicate: bool = True) -> Corpus:
    """Return a corpus of texts with ids, in one file or, divided at `cuts`, in several."""
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    borders = [0, *sorted(cuts), len(rows)]
    files = [rows[start:stop] for start, stop in pairwise(borders)]
    return read_corpus_of(write_files(folder, files), deduplicate=deduplicate)


def read_corpus_of(*folders: Path, **settings: Any) -> Corpus:
    """Return a corpus of files, folders or `name=path`, with settings of `Corpus`."""
    return Corpus(find_sources([parse_source(str(folder)) for folder in folders]), **settings)


def zipf_texts(count: int, *, words: int = 300, longest: int = 40, seed: int = 0) -> list[str]:
    """Return texts with word frequencies like those of a language; most texts contain the most frequent words."""
    random = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, words + 1)
    drawn = [random.choice(words, random.integers(1, longest + 1), p=shares / shares.sum()) for _ in range(count)]
    return [" ".join(f"w{number}" for number in numbers) for numbers in drawn]


def all_passages(joined: JoinedCorpus, folder: Path, *, workers: int = 1) -> list[dict[str, Any]]:
    """Return all passages of a joined corpus, fetched by position, as rows of the table of retrieved passages."""
    folder.mkdir()
    shards = []
    for number, shard in enumerate(joined.shards):
        count = shard.passages
        ones = np.ones(count, dtype=np.int64)
        positions = shard.first_position + np.arange(count)
        query_matches = np.zeros(count, dtype=np.int32)
        path = folder / f"{number}.npz"
        locate_matches(shard, MatchedPassages(positions, ones, ones / 2, ones, ones, query_matches)).save(path)
        shards.append((shard.shard, path))
    return [row for batch in fetch_passages(shards, ["e"], folder, LocalExecutor(workers)) for row in batch.to_pylist()]


class Bm25s:
    """`bm25s` with endtask's words, in double precision, since single precision adds errors for long queries."""

    def __init__(self, texts: Iterable[str], k1: float, b: float) -> None:
        import bm25s

        self._numbers: dict[str, int] = {}
        documents = [[self._numbers.setdefault(word, len(self._numbers)) for word in words_of(text)] for text in texts]
        self._count = len(documents)
        self._scorer = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float64")
        if self._numbers:
            self._scorer.index((documents, self._numbers), show_progress=False, create_empty_token=False)

    def scores(self, query: str) -> np.ndarray:
        known = [self._numbers[word] for word in words_of(query) if word in self._numbers]
        return self._scorer.get_scores_from_ids(known) if known else np.zeros(self._count)


def assert_ranks(ranking: Ranking, scores: np.ndarray, top_k: int) -> None:
    """Assert that a ranking has the best K scores, within 1e-5 of the K-th, sorted by score, then by position."""
    positions, found = ranking.positions.tolist(), ranking.scores.tolist()
    size = min(top_k, int(np.count_nonzero(scores)))
    assert len(positions) == len(set(positions)) == size
    np.testing.assert_allclose(found, scores[positions], rtol=1e-5)
    order = [(-score, position) for score, position in zip(found, positions, strict=True)]
    assert order == sorted(order)
    if size:
        last = np.sort(scores)[-size]
        assert (scores[positions] >= last * (1 - 1e-5)).all()
        assert set(np.flatnonzero(scores > last * (1 + 1e-5)).tolist()) <= set(positions)


def as_bytes(rankings: Rankings) -> bytes:
    """Return the content of rankings as bytes, whatever their blocks."""
    parts = [rankings[query] for query in range(len(rankings))]
    return b"|".join(part.positions.astype("<i8").tobytes() + part.scores.astype("<f8").tobytes() for part in parts)
