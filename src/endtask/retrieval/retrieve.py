"""Retrieve passages with every train text as a query, and write their union with its provenance."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from endtask.config import RetrieveSettings
from endtask.corpus import Corpus
from endtask.errors import a_few
from endtask.executors.base import Executor
from endtask.io.atomic import atomic_file
from endtask.io.run_layout import PASSAGE_SIZES, QUERIES, QUERY_WORDS, RETRIEVED
from endtask.io.selection_table import list_array, write_batches, write_selection
from endtask.progress import warn
from endtask.retrieval.queries import Query, build_queries, papers_top_k
from endtask.task import Task, remove_entity_markers

if TYPE_CHECKING:  # these import Numba, which is slow
    from endtask.retrieval.bm25.join import JoinedCorpus
    from endtask.retrieval.bm25.rankings import Rankings


K1, B = 1.2, 0.75
"""BM25's constants, the defaults of Lucene, with which TLM retrieved."""


@dataclass(frozen=True)
class RetrievePaths:
    """The stage's folder, its scratch folder (which a later run over a changed corpus can reuse), and its executor."""

    folder: Path
    scratch: Path
    executor: Executor


def retrieve(
    task: Task,
    corpus: Corpus | None,
    settings: RetrieveSettings,
    paths: RetrievePaths,
) -> dict[str, Any]:
    """Write the retrieved passages (none without a corpus) and return counts for the manifest."""
    if corpus is None:
        write_selection(paths.folder / RETRIEVED, [])
        return {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
    from endtask.retrieval.bm25.ranking_pass import number_terms, rank_passages  # Numba is slow to import

    queries = build_queries(task.train, mode=settings.query)
    joined, words = _read(task, corpus, queries, settings, paths)
    if unknown := joined.unknown_exclusions:
        examples = a_few(map(repr, unknown), 3)
        warn(f"corpus.exclude: {len(unknown):,} of its ids are not in the corpus ({examples})")
    top_k = papers_top_k(len(task.train), settings.top_k)
    terms = number_terms(words, [query.words for query in queries])
    for line in joined.statistics.skipped_lines():
        warn(line)
    folder = paths.scratch / "rankings"
    rankings = rank_passages(joined, terms, folder, paths.executor, top_k=top_k, k1=K1, b=B)
    passages = _write_retrieved(joined, rankings, queries, paths)
    _write_queries(queries, paths.folder / QUERIES)
    _write_words(words, joined, paths.folder / QUERY_WORDS)
    _write_sizes(joined, paths.folder / PASSAGE_SIZES)
    # A run over a changed corpus can reuse shards; rankings serve only to resume this run.
    shutil.rmtree(folder, ignore_errors=True)
    return {
        **_counts(joined, corpus),
        "queries": len(queries),
        "texts_without_words": len(task.train) - sum(len(query.example_ids) for query in queries),
        "passages": passages,
        "top_k": top_k,
        "k1": K1,
        "b": B,
    }


def evaluation_texts(task: Task) -> Iterator[str]:
    """Yield the dev and test texts with and without entity markers, which may be words for retrieval (`<e1>`)."""
    for split in ("dev", "test"):
        for example in task.splits.get(split, ()):
            for text in (example.text, example.text_pair):
                if text:
                    yield from {text, remove_entity_markers(text)}
    for auxiliary in task.auxiliary.values():
        yield from evaluation_texts(auxiliary)


def _read(
    task: Task, corpus: Corpus, queries: Sequence[Query], settings: RetrieveSettings, paths: RetrievePaths
) -> tuple[JoinedCorpus, tuple[str, ...]]:
    """Run pass 1; return the corpus and the words of all queries."""
    from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus

    texts = list(evaluation_texts(task)) if settings.contamination_filter else []
    spec = ScanSpec.of((word for query in queries for word in query.words), texts)
    joined = read_corpus(corpus, spec, paths.scratch / "shards", paths.executor)
    return joined, spec.words


def _write_retrieved(joined: JoinedCorpus, rankings: Rankings, queries: Sequence[Query], paths: RetrievePaths) -> int:
    """Write the passages that match a query, in corpus order, with their queries; return their number."""
    from endtask.retrieval.matched_queries import QueryMatches, fetch_passages, locate_matches

    folder = paths.scratch / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    borders = [shard.first_position for shard in joined.shards] + [joined.positions]
    matches = QueryMatches(rankings, queries)
    shards = []
    for number, (shard, matched) in enumerate(zip(joined.shards, matches.by_range(borders), strict=True)):
        if len(matched.positions):
            located = locate_matches(shard, matched)
            path = folder / f"{number}-{located.key(shard.folder.path.name)}.npz"
            located.save(path)
            shards.append((shard.shard, path))
    example_ids = [example_id for query in queries for example_id in query.example_ids]
    batches = fetch_passages(shards, example_ids, folder, paths.executor)
    written = write_batches(paths.folder / RETRIEVED, batches)
    shutil.rmtree(folder)
    return written


def _write_queries(queries: Sequence[Query], path: Path) -> None:
    words = _lists([query.words for query in queries])
    _write_columns(path, {"words": words, "example_ids": _lists([query.example_ids for query in queries])})


def _lists(rows: Sequence[Sequence[str]]) -> Any:
    import pyarrow as arrow

    values = arrow.array([value for row in rows for value in row], arrow.string())
    return list_array(values, [len(row) for row in rows])


def _write_words(words: Sequence[str], joined: JoinedCorpus, path: Path) -> None:
    """Write the query words that occur in the corpus, with the number of scored passages that contain each."""
    import pyarrow as arrow

    known = np.flatnonzero(joined.document_frequency)
    names = arrow.array(words, arrow.string()).take(arrow.array(known))
    _write_columns(path, {"word": names, "document_frequency": joined.document_frequency[known]})


def _write_columns(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    with atomic_file(path) as aside:
        parquet.write_table(arrow.table(columns), aside, compression="zstd", row_group_size=5000)


def _write_sizes(joined: JoinedCorpus, path: Path) -> None:
    content = BytesIO()
    np.save(content, joined.passage_sizes())  # to memory, since NumPy ignores a full disk
    with atomic_file(path) as aside:
        aside.write_bytes(content.getvalue())


def _counts(joined: JoinedCorpus, corpus: Corpus) -> dict[str, Any]:
    total = joined.statistics.total
    notes = [*corpus.unread_lines(), *joined.statistics.skipped_lines()]
    return {
        "dropped_by_contamination_filter": joined.contaminated,
        "unknown_exclusions": list(joined.unknown_exclusions),
        "passages_scored": joined.scored,
        "mean_length": joined.mean_length,
        "corpus": {
            "passages": total.passages,
            "bytes": total.bytes,
            "sources": joined.statistics.to_dict(),
            "notes": notes,
        },
    }
