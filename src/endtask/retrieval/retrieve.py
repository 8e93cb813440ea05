"""The retrieve stage: every train text asks the corpus, and the union of the answers is written with its reasons."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from endtask.config import ColumnSettings, RetrieveSettings
from endtask.corpus import Corpus
from endtask.errors import a_few
from endtask.io.atomic import atomic_file
from endtask.io.run_layout import PASSAGE_SIZES, QUERIES, QUERY_WORDS, RETRIEVED
from endtask.io.selection_table import list_array, write_batches, write_selection
from endtask.progress import warn
from endtask.retrieval.queries import Query, TaskQueries, keep_rarest, papers_top_k, task_queries
from endtask.task import Task, remove_entity_markers

if TYPE_CHECKING:  # these import Numba, which takes a while
    from endtask.retrieval.join import Joined
    from endtask.retrieval.rankings import Rankings


@dataclass(frozen=True)
class Place:
    """Where the stage writes: its results, and what may be of use to a later run over a changed corpus."""

    folder: Path
    scratch: Path
    workers: int
    keep_scratch: bool = True


def retrieve(
    task: Task, corpus: Corpus | None, settings: RetrieveSettings, place: Place, columns: ColumnSettings | None = None
) -> dict[str, Any]:
    """Write the retrieved passages; returns counts for the manifest. Without a corpus nothing is retrieved."""
    if corpus is None:
        write_selection(place.folder / RETRIEVED, [])
        return {"passages": 0, "corpus": {"passages": 0, "bytes": 0}}
    asking = task_queries(task, settings, columns)
    joined, words = _read(task, corpus, asking, settings, place)
    if unknown := joined.unknown_exclusions:
        named = a_few(map(repr, unknown), 3)
        warn(f"corpus.exclude: {len(unknown):,} of its ids are not in the corpus ({named})")
    queries = asking.queries
    if settings.query == "idf":
        frequency = dict(zip(words, joined.document_frequency.tolist(), strict=True))
        queries = keep_rarest(queries, lambda word: frequency.get(word, 0), settings.query_words)
    top_k = settings.top_k
    if top_k == "auto":
        top_k = papers_top_k(len(task.train), settings.large_scale)
    rankings = _rank(joined, queries, words, top_k, settings, place)
    passages = _write_retrieved(joined, rankings, queries, task.labels, place)
    _write_queries(queries, place.folder / QUERIES)
    _write_words(words, joined, place.folder / QUERY_WORDS)
    _write_sizes(joined, place.folder / PASSAGE_SIZES)
    # Shards may serve a later run over a changed corpus; rankings, only a killed run over the same one.
    shutil.rmtree(place.scratch / "rankings" if place.keep_scratch else place.scratch, ignore_errors=True)
    return {
        **_counts(joined, asking),
        "queries": len(queries),
        "passages": passages,
        "top_k": top_k,
        "k1": settings.k1,
        "b": settings.b,
    }


def evaluation_texts(task: Task) -> Iterator[str]:
    """The texts of dev and test; some marks are words themselves (`<e1>`), so with them and without."""
    for split in ("dev", "test"):
        for example in task.splits.get(split, ()):
            for text in (example.text, example.text_pair):
                if text:
                    yield from {text, remove_entity_markers(text)}
    for auxiliary in task.auxiliary.values():
        yield from evaluation_texts(auxiliary)


def _read(
    task: Task, corpus: Corpus, asking: TaskQueries, settings: RetrieveSettings, place: Place
) -> tuple[Joined, tuple[str, ...]]:
    """Pass 1, and the words it looked for."""
    from endtask.retrieval.matched_passages import Asked
    from endtask.retrieval.statistics_pass import read_corpus

    is_contaminated = list(evaluation_texts(task)) if settings.contamination_filter else []
    words = (word for query in asking.queries for word in query.words)
    asked = Asked.of(words, is_contaminated, signatures=settings.near_duplicates is not None)
    alike = settings.near_duplicates
    joined = read_corpus(corpus, asked, place.scratch / "shards", workers=place.workers, near_duplicates=alike)
    return joined, asked.words


def _rank(
    joined: Joined,
    queries: Sequence[Query],
    words: Sequence[str],
    top_k: int,
    settings: RetrieveSettings,
    place: Place,
) -> Rankings:
    """Pass 2."""
    from endtask.retrieval.scoring_pass import number_terms, rank_passages

    terms = number_terms(words, [query.words for query in queries])
    folder = place.scratch / "rankings"
    return rank_passages(joined, terms, folder, top_k=top_k, k1=settings.k1, b=settings.b, workers=place.workers)


def _write_retrieved(
    joined: Joined, rankings: Rankings, queries: Sequence[Query], labels: Sequence[str], place: Place
) -> int:
    """The passages somebody asked for, in corpus order, with who asked."""
    from endtask.retrieval.fetch import fetch_passages, wanted_of
    from endtask.retrieval.matched_queries import QueryMatches

    folder = place.scratch / "texts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    borders = [shard.first_position for shard in joined.shards] + [joined.positions]
    who = QueryMatches(rankings, queries, labels)
    wanted = []
    for number, (shard, asked) in enumerate(zip(joined.shards, who.by_stretch(borders), strict=True)):
        if len(asked.positions):
            statistics = folder / f"{number}.npz"
            wanted_of(shard, asked).save(statistics)
            wanted.append((shard.shard, statistics))
    example_ids = [example_id for query in queries for example_id in query.example_ids]
    rows = fetch_passages(wanted, example_ids, folder, workers=place.workers)
    written = write_batches(place.folder / RETRIEVED, rows, class_ranks=True)
    shutil.rmtree(folder)
    return written


def _write_queries(queries: Sequence[Query], path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    words = [query.words for query in queries]
    ids = [query.example_ids for query in queries]
    table = arrow.table({"words": _lists(words), "example_ids": _lists(ids)})
    with atomic_file(path) as aside:
        parquet.write_table(table, aside, compression="zstd", row_group_size=5000)


def _lists(rows: Sequence[Sequence[str]]) -> Any:
    import pyarrow as arrow

    values = arrow.array([value for row in rows for value in row], arrow.string())
    return list_array(values, [len(row) for row in rows])


def _write_words(words: Sequence[str], joined: Joined, path: Path) -> None:
    """The query words that the corpus holds, with the number of scored passages that hold each."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    found = np.flatnonzero(joined.document_frequency)
    names = arrow.array(words, arrow.string()).take(arrow.array(found))
    table = arrow.table({"word": names, "document_frequency": joined.document_frequency[found]})
    with atomic_file(path) as aside:
        parquet.write_table(table, aside, compression="zstd", row_group_size=5000)


def _write_sizes(joined: Joined, path: Path) -> None:
    content = BytesIO()
    np.save(content, joined.passage_sizes())  # to a file itself, NumPy would not tell of a disk that is full
    with atomic_file(path) as aside:
        aside.write_bytes(content.getvalue())


def _counts(joined: Joined, asking: TaskQueries) -> dict[str, Any]:
    total = joined.statistics.total
    return {
        **asking.counts(),
        "dropped_by_contamination_filter": joined.is_contaminated,
        "near_duplicates": joined.near_duplicates,
        "unknown_exclusions": list(joined.unknown_exclusions),
        "passages_scored": joined.scored,
        "mean_length": joined.mean_length,
        "corpus": {"passages": total.passages, "bytes": total.bytes, "sources": joined.statistics.to_dict()},
    }
