"""The engines: all read the same files, split texts into the same words and rank passages for the same queries.

Each has the fastest settings of its documentation for two cores:

- bm25s (`method="lucene"`): words as numbers, SciPy builds the matrix, two threads for queries.
- tantivy: two indexing threads with a gigabyte together, which also split the words (a regular expression in Rust), no
  word positions, no query parser, two threads for queries. It rounds lengths to one byte, so its scores differ.
- rank-bm25: plain Python, one thread, no settings.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.retrieval.words import fold, words_of


def word_expression() -> str:
    """Return the pattern of a word in folded text for Rust's `regex`."""
    ideographs = r"\x{3007}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{3FFFF}"
    return rf"[\p{{L}}\p{{N}}\p{{M}}--[{ideographs}]]+|[\p{{L}}\p{{N}}\p{{M}}&&[{ideographs}]]"


K1, B = 1.2, 0.75
THREADS = 2
_TANTIVY_BYTES = 1_000_000_000


Ranking = tuple[NDArray[Any], NDArray[Any]]
"""The positions of a query's passages, best first, and their scores."""


@dataclass
class EngineResult:
    """The rankings of an engine by index of the query, and the seconds of its parts."""

    ranking: Callable[[int], Ranking] = field(init=False)
    parts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part."""
        start = time.perf_counter()
        yield
        self.parts[name] = round(time.perf_counter() - start, 3)


Engine = Callable[[Sequence[str], list[str], int, Path], EngineResult]


def endtask(paths: Sequence[str], queries: list[str], top_k: int, scratch: Path) -> EngineResult:
    """Rank with endtask: two streaming passes, no index."""
    from endtask.retrieval.bm25.ranking_pass import search

    result = EngineResult()
    rankings = search(Corpus.read(paths), queries, top_k=top_k, k1=K1, b=B, workers=THREADS, folder=scratch)
    result.ranking = lambda query: (rankings[query].positions, rankings[query].scores)
    return result


def bm25s_numpy(paths: Sequence[str], queries: list[str], top_k: int, scratch: Path) -> EngineResult:
    """Rank with bm25s without compiled code."""
    return _bm25s("numpy", paths, queries, top_k)


def bm25s_numba(paths: Sequence[str], queries: list[str], top_k: int, scratch: Path) -> EngineResult:
    """Rank with bm25s and its Numba backend."""
    return _bm25s("numba", paths, queries, top_k)


def _bm25s(backend: str, paths: Sequence[str], queries: list[str], top_k: int) -> EngineResult:
    import bm25s

    result = EngineResult()
    with result.part("read and cut"):
        words = _numbered(_texts(paths))
    with result.part("index"):
        scorer = bm25s.BM25(method="lucene", k1=K1, b=B, backend=backend, csc_backend="scipy")
        scorer.index(words, show_progress=False)
        del words
    with result.part("search"):
        query_words = [words_of(query) for query in queries]
        best = min(top_k, scorer.scores["num_docs"])
        positions, scores = scorer.retrieve(query_words, k=best, n_threads=THREADS, show_progress=False)
    result.ranking = lambda query: (positions[query], scores[query])
    return result


def _numbered(texts: Iterable[str]) -> tuple[list[list[int]], dict[str, int]]:
    """Return each text as numbers of words, and the words: the input of bm25s, faster than by its own tokenizer."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__  # a new word gets the next number
    ids = [list(map(numbers.__getitem__, words_of(text))) for text in texts]
    return ids, dict(numbers)


def tantivy(paths: Sequence[str], queries: list[str], top_k: int, scratch: Path) -> EngineResult:
    """Rank with a search engine library in Rust, with its index in memory."""
    result = EngineResult()
    with result.part("read and index"):
        index, schema = _tantivy_index(paths)
    searcher = index.searcher()

    def rank(query: str) -> Ranking:
        hits = searcher.search(_tantivy_query(query, schema), limit=top_k, count=False).hits
        positions = searcher.fast_field_values("position", [address for _, address in hits])
        return np.array(positions, dtype=np.int64), np.array([score for score, _ in hits], dtype=np.float32)

    with result.part("search"), ThreadPoolExecutor(THREADS) as threads:
        result.ranking = list(threads.map(rank, queries)).__getitem__
    return result


def _tantivy_index(paths: Sequence[str]) -> tuple[Any, Any]:
    from tantivy import Document, Index, SchemaBuilder, TextAnalyzerBuilder, Tokenizer

    fields = SchemaBuilder()
    fields.add_text_field("text", tokenizer_name="words", index_option="freq")
    fields.add_unsigned_field("position", fast=True)  # two threads do not keep the order of the passages
    schema = fields.build()
    index = Index(schema)
    index.register_tokenizer("words", TextAnalyzerBuilder(Tokenizer.regex(word_expression())).build())
    writer = index.writer(heap_size=_TANTIVY_BYTES, num_threads=THREADS)
    for position, text in enumerate(_texts(paths)):
        document = Document()
        document.add_text("text", fold(text))
        document.add_unsigned("position", position)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index, schema


def _tantivy_query(query: str, schema: Any) -> Any:
    from tantivy import Occur, Query

    words = [
        (Query.term_query(schema, "text", word, "freq"), count) for word, count in Counter(words_of(query)).items()
    ]
    return Query.boolean_query(
        [(Occur.Should, word if count == 1 else Query.boost_query(word, float(count))) for word, count in words]
    )


def rank_bm25(paths: Sequence[str], queries: list[str], top_k: int, scratch: Path) -> EngineResult:
    """Rank with a short, plain implementation that scores every passage for every query."""
    from rank_bm25 import BM25Okapi

    result = EngineResult()
    with result.part("read and index"):
        scorer = BM25Okapi([words_of(text) for text in _texts(paths)], k1=K1, b=B)
    with result.part("search"):
        rankings = []
        for query in queries:
            scores = scorer.get_scores(words_of(query))
            best = np.argsort(-scores, kind="stable")[:top_k]
            rankings.append((best, scores[best]))
    result.ranking = rankings.__getitem__
    return result


def _texts(paths: Sequence[str]) -> Iterator[str]:
    return (document.text for document in Corpus.read(paths).documents())


ENGINES: dict[str, Engine] = {
    "endtask": endtask,
    "bm25s-numba": bm25s_numba,
    "bm25s-numpy": bm25s_numpy,
    "tantivy": tantivy,
    "rank-bm25": rank_bm25,
}
PACKAGES = {"bm25s-numba": "bm25s", "bm25s-numpy": "bm25s", "tantivy": "tantivy", "rank-bm25": "rank-bm25"}
COMPILED = ("endtask", "bm25s-numba")
"""The engines that compile: endtask in the first run after installation, bm25s in every process."""
