"""The selection as a Parquet table: every kept passage with who asked for it, how well it matched and why it stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

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


def read_selection(path: Path) -> Iterator[Selected]:
    """Read passages back, streaming."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS_PER_GROUP):
            for row in batch.to_pylist():
                document = Document(row["id"], row["text"], row["source"], row["title"], row["licence"])
                yield Selected(
                    document,
                    row["position"],
                    row["rank"],
                    row["score"],
                    row["asked_count"],
                    tuple(row["asked_by"]),
                    row["reason"],
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
