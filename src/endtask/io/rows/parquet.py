"""Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from endtask.errors import InputError
from endtask.io.compression import COMPRESSIONS, READ_FAILURES, open_bytes, read_failure
from endtask.io.input_files import InputFile, ReadOptions
from endtask.io.rows.base import NumberedRows, RowFormat, row_formats


@row_formats.register("parquet")
class Parquet(RowFormat):
    """The records of a Parquet file."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet",)
    precedence = 0

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the records, numbered from 1; after an error the rest is lost."""
        import pyarrow as arrow

        number = 0
        try:
            for number, row in _records(path, options):
                yield number, row
        except UnicodeDecodeError:
            options.on_error(InputError("not valid UTF-8", path=path, row=number + 1))
        except arrow.ArrowException as error:
            message = f"not a readable Parquet file: {str(error).splitlines()[0]}"
            options.on_error(InputError(message, path=path, row=number + 1 if number else None))
        except READ_FAILURES as error:
            options.on_error(read_failure(error, path))


def _records(path: InputFile, options: ReadOptions) -> NumberedRows:
    table = _open(path)
    size, rows = (path.stat().st_size if isinstance(path, Path) else path.size), table.metadata.num_rows
    number = reported = 0
    # Small batches: a record may be as long as a book.
    for batch in table.iter_batches(batch_size=256):
        for row in batch.to_pylist():
            number += 1
            yield number, row
        if options.progress:
            options.progress(size * number // rows - reported)
            reported = size * number // rows


def _open(path: InputFile) -> Any:
    """Open a file, or its content if the file itself is compressed or in an archive."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    with open_bytes(path) as file:
        is_plain = isinstance(path, Path) and path.suffix.lower() not in COMPRESSIONS
        source = path if is_plain else arrow.BufferReader(file.read())
    return parquet.ParquetFile(source, buffer_size=1 << 20)
