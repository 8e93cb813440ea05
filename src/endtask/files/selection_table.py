"""The selection as a Parquet table: every kept passage with who asked for it, how well it matched and why it stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.files.atomic import whole_file
from endtask.records import Document, Selected

_ROWS_PER_GROUP = 5000


def write_selection(path: Path, selected: Iterable[Selected]) -> int:
    """Write passages in the order given, streaming; returns how many."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    schema = arrow.schema(
        [
            ("id", arrow.string()),
            ("source", arrow.string()),
            ("title", arrow.string()),
            ("licence", arrow.string()),
            ("text", arrow.string()),
            ("position", arrow.int64()),
            ("rank", arrow.int64()),
            ("score", arrow.float64()),
            ("asked_count", arrow.int64()),
            ("asked_by", arrow.list_(arrow.string())),
            ("reason", arrow.string()),
        ]
    )
    count = 0
    stream = iter(selected)
    with whole_file(path) as aside, parquet.ParquetWriter(aside, schema, compression="zstd") as writer:
        while chunk := list(islice(stream, _ROWS_PER_GROUP)):
            writer.write_table(arrow.Table.from_pylist([_as_row(item) for item in chunk], schema=schema))
            count += len(chunk)
    return count


def read_selection(path: Path, kept: NDArray[np.bool_] | None = None) -> Iterator[Selected]:
    """Read passages back, streaming; with `kept`, one entry per row, only the rows it marks."""
    import pyarrow.parquet as parquet

    start = 0
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS_PER_GROUP):
            rows = batch if kept is None else batch.take(np.flatnonzero(kept[start : start + len(batch)]))
            start += len(batch)
            yield from map(_from_row, rows.to_pylist())


@dataclass(frozen=True)
class SelectionFigures:
    """The numbers of a selection, one array entry per passage; `bytes` is the size of the text in UTF-8."""

    rank: NDArray[np.int64]
    score: NDArray[np.float64]
    bytes: NDArray[np.int64]


def read_figures(path: Path) -> SelectionFigures:
    """Read the numbers that selectors need; texts pass by, a few at a time."""
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        columns = file.read(columns=["rank", "score"])
        batches = file.iter_batches(batch_size=_ROWS_PER_GROUP, columns=["text"])
        sizes = [compute.binary_length(batch.column(0)).to_numpy() for batch in batches]
    return SelectionFigures(
        columns["rank"].to_numpy(),
        columns["score"].to_numpy(),
        np.concatenate([np.zeros(0, dtype=np.int64), *sizes]).astype(np.int64),
    )


class SelectedTexts:
    """The texts of a selection, read from disk at each pass."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[str]:
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(self._path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_PER_GROUP, columns=["text"]):
                yield from batch.column(0).to_pylist()


def _from_row(row: dict[str, Any]) -> Selected:
    document = Document(row["id"], row["text"], row["source"], row["title"], row["licence"])
    return Selected(
        document,
        row["position"],
        row["rank"],
        row["score"],
        row["asked_count"],
        tuple(row["asked_by"]),
        row["reason"],
    )


def _as_row(item: Selected) -> dict[str, object]:
    document = item.document
    return {
        "id": document.id,
        "source": document.source,
        "title": document.title,
        "licence": document.licence,
        "text": document.text,
        "position": item.position,
        "rank": item.rank,
        "score": item.score,
        "asked_count": item.asked_count,
        "asked_by": list(item.asked_by),
        "reason": item.reason,
    }
