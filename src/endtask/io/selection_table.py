"""The selection as a Parquet table: every selected passage with its matched queries, rank, score and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from endtask.io.atomic import atomic_file
from endtask.records import Document, Selected

Batch = Any
"""A `pyarrow.RecordBatch`; pyarrow has no type annotations."""

_ROWS_PER_GROUP = 5000
_BYTES_PER_GROUP = 1 << 26  # an imported passage may be as long as a book


def selection_schema() -> Any:
    """Return the table's Arrow schema."""
    import pyarrow as arrow

    columns = [
        ("id", arrow.string()),
        ("source", arrow.string()),
        ("title", arrow.string()),
        ("license", arrow.string()),
        ("text", arrow.string()),
        ("position", arrow.int64()),
        ("rank", arrow.int64()),
        ("score", arrow.float64()),
        ("matched_count", arrow.int64()),
        ("matched_queries", arrow.list_(arrow.string())),
        ("reason", arrow.string()),
    ]
    return arrow.schema(columns)


def selection_batch(
    documents: Sequence[Document],
    *,
    position: ArrayLike,
    rank: ArrayLike,
    score: ArrayLike,
    matched_count: ArrayLike,
    matched_queries: Sequence[Sequence[str]],
    reason: Sequence[str],
) -> Batch:
    """Return a record batch of the table from one sequence per column."""
    import pyarrow as arrow

    names = ("id", "source", "title", "license", "text")
    columns = [
        *(arrow.array([getattr(document, name) for document in documents], arrow.string()) for name in names),
        *(arrow.array(np.asarray(numbers, dtype=np.int64)) for numbers in (position, rank)),
        arrow.array(np.asarray(score, dtype=np.float64)),
        arrow.array(np.asarray(matched_count, dtype=np.int64)),
        list_array(
            arrow.array(list(chain.from_iterable(matched_queries)), arrow.string()),
            [len(ids) for ids in matched_queries],
        ),
        arrow.array(reason, arrow.string()),
    ]
    return arrow.RecordBatch.from_arrays(columns, schema=selection_schema())


def write_batches(path: Path, batches: Iterable[Batch]) -> int:
    """Write batches of `selection_schema` as a stream, in their order. Return the number of rows."""
    import pyarrow.parquet as parquet

    count, schema = 0, selection_schema()
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in _tables(batches):
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
            count += table.num_rows
    return count


def write_selection(path: Path, selected: Iterable[Selected]) -> int:
    """Write passages as a stream, in their order. Return their number."""
    return write_batches(path, map(_batch_of, _chunks(selected)))


def read_group(path: Path, group: int, columns: Sequence[str]) -> Iterator[Batch]:
    """Yield the rows of a row group in the batches in which `read_batches` yields them."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        yield from file.iter_batches(_ROWS_PER_GROUP, row_groups=[group], columns=columns)


def count_groups(path: Path) -> int:
    """Return the number of row groups of a table."""
    import pyarrow.parquet as parquet

    return int(parquet.read_metadata(path).num_row_groups)


def read_batches(
    path: Path, mask: NDArray[np.bool_] | None = None, columns: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield rows in batches; `mask` has an entry per row and selects the rows to read."""
    import pyarrow.parquet as parquet

    start = 0
    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            if mask is None or mask[start:end].any():
                for batch in file.iter_batches(_ROWS_PER_GROUP, row_groups=[group], columns=columns):
                    yield batch if mask is None else batch.take(np.flatnonzero(mask[start : start + len(batch)]))
                    start += len(batch)
            start = end


def table_rows(path: Path) -> int:
    """Return the number of rows of a table."""
    import pyarrow.parquet as parquet

    return int(parquet.read_metadata(path).num_rows)


def read_selection(path: Path, mask: NDArray[np.bool_] | None = None) -> Iterator[Selected]:
    """Yield passages; `mask` has an entry per row and selects the rows to read."""
    columns = selection_schema().names
    for batch in read_batches(path, mask, columns):
        yield from _selected(batch)


@dataclass(frozen=True)
class SelectionStatistics:
    """Numbers of a selection, an array entry per passage; `bytes` is the size of the text in UTF-8."""

    rank: NDArray[np.int64]
    score: NDArray[np.float64]
    bytes: NDArray[np.int64]


def read_statistics(path: Path) -> SelectionStatistics:
    """Return the numbers that selectors need; texts are streamed, not held in memory."""
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        columns = file.read(columns=["rank", "score"])
    sizes = [compute.binary_length(batch.column(0)).to_numpy() for batch in read_batches(path, columns=["text"])]
    return SelectionStatistics(
        columns["rank"].to_numpy(),
        columns["score"].to_numpy(),
        np.concatenate([np.zeros(0, dtype=np.int64), *sizes]).astype(np.int64),
    )


class SelectedTexts:
    """The texts of a selection, read from disk at each iteration."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[str]:
        for batch in read_batches(self._path, columns=["text"]):
            yield from batch.column(0).to_pylist()


def _tables(batches: Iterable[Batch]) -> Iterator[Any]:
    """Yield tables of several batches, at least as large as a row group; many small groups are slow to read."""
    import pyarrow as arrow

    pending: list[Batch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= _ROWS_PER_GROUP or size >= _BYTES_PER_GROUP:
            yield arrow.Table.from_batches(pending)
            pending, rows, size = [], 0, 0
    if pending:
        yield arrow.Table.from_batches(pending)


def _chunks(selected: Iterable[Selected]) -> Iterator[list[Selected]]:
    chunk: list[Selected] = []
    characters = 0
    for item in selected:
        chunk.append(item)
        characters += len(item.document.text)
        if len(chunk) >= _ROWS_PER_GROUP or characters >= _BYTES_PER_GROUP:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _batch_of(items: list[Selected]) -> Batch:
    return selection_batch(
        [item.document for item in items],
        position=[item.position for item in items],
        rank=[item.rank for item in items],
        score=[item.score for item in items],
        matched_count=[item.matched_count for item in items],
        matched_queries=[item.matched_queries for item in items],
        reason=[item.reason for item in items],
    )


def _selected(batch: Batch) -> Iterator[Selected]:
    def values(*names: str) -> list[list[Any]]:
        return [batch.column(name).to_pylist() for name in names]

    documents = map(Document, *values("id", "text", "source", "title", "license"))
    statistics = values("position", "rank", "score", "matched_count")
    return map(Selected, documents, *statistics, _tuples(batch.column("matched_queries")), *values("reason"))


def list_array(values: Any, lengths: ArrayLike) -> Any:
    """Return a column of lists from their concatenated values and the length of each."""
    import pyarrow as arrow

    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    return arrow.ListArray.from_arrays(offsets, values)


def _tuples(lists: Any) -> Iterator[tuple[str, ...]]:
    """Yield the values of each list; `to_pylist` on the lists takes several times as long."""
    import pyarrow.compute as compute

    values = lists.flatten().to_pylist()
    ends = np.cumsum(compute.list_value_length(lists).to_numpy()).tolist()
    return (tuple(values[start:end]) for start, end in zip([0, *ends], ends, strict=False))
