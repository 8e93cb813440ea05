"""Write rows with predictions as CSV, TSV, JSON Lines or Parquet, streaming; the file appears when it is complete."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from endtask.errors import InputError, did_you_mean
from endtask.io.atomic import atomic_file, remove_leftovers_of
from endtask.io.compression import COMPRESSIONS, atomic_compressed_file, bare_suffix
from endtask.io.spreadsheets import escaped

Row = dict[str, Any]
NumberedRow = tuple[int, Row]
Writer = Callable[[Sequence[NumberedRow]], None]
"""Called with the next rows and their numbers in the file that was read."""


def check_output(target: Path) -> None:
    """Raise `InputError` before any prediction is made, if the file cannot be written."""
    suffix = bare_suffix(target)
    if suffix not in _WRITERS:
        known = f"known: {', '.join(_WRITERS)}, or those {' '.join(COMPRESSIONS)}"
        near = did_you_mean(suffix, _WRITERS) if suffix else known
        raise InputError("unknown kind of file", path=target, hint=near if near.startswith("did you mean") else known)
    if suffix == ".parquet" and target.suffix.lower() != ".parquet":
        raise InputError("Parquet files compress themselves", path=target, hint=f"write {target.with_suffix('').name}")
    if target.exists() or target.is_symlink():
        raise InputError("the file exists and was left as it is", path=target, hint="choose another name")
    if not target.absolute().parent.is_dir():
        raise InputError("no such folder", path=target.parent, hint="make it first")


@contextmanager
def table_writer(target: Path, *, raw_cells: bool = False) -> Iterator[Writer]:
    """Yield a function that writes rows; `raw_cells` leaves cells that spreadsheets take for formulas as they are."""
    check_output(target)
    with _WRITERS[bare_suffix(target)](target, raw_cells) as writer:
        yield writer


def cell_text(value: Any) -> str:
    """Return a value as the text of a cell: nothing for null, JSON for lists.

    >>> cell_text(None), cell_text(0.5), cell_text(["a", "b"]), cell_text(True)
    ('', '0.5', '["a", "b"]', 'true')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value), ensure_ascii=False) if isinstance(value, list | dict | bool) else str(value)


class _Columns:
    """The columns of a table without types: those of the first row; later rows may leave out some, not add any."""

    def __init__(self, target: Path) -> None:
        self.names: list[str] | None = None
        self._target = target

    def cells(self, number: int, row: Row) -> list[Any]:
        if self.names is None:
            self.names = list(row)
        added = next((name for name in row if name not in self.names), None)
        if added is not None:
            message = f"the row has a key {added!r} that the first row does not have"
            raise InputError(message, path=self._target, row=number, hint="write a .jsonl file")
        return [row.get(name) for name in self.names]


@contextmanager
def _csv_writer(target: Path, raw_cells: bool) -> Iterator[Writer]:
    columns, protect = _Columns(target), (lambda cell: cell) if raw_cells else escaped
    with atomic_compressed_file(target) as stream:
        text = io.StringIO()
        cells = csv.writer(text, lineterminator="\n")

        def write(rows: Sequence[NumberedRow]) -> None:
            for number, row in rows:
                first = columns.names is None
                values = columns.cells(number, row)
                if first:
                    cells.writerow([protect(name) for name in columns.names or ()])
                cells.writerow([protect(cell_text(value)) for value in values])
            _move(text, stream)

        yield write


@contextmanager
def _tsv_writer(target: Path, raw_cells: bool) -> Iterator[Writer]:
    """TSV is read without quoting, so a cell cannot hold a TAB or a line break."""
    columns, protect = _Columns(target), (lambda cell: cell) if raw_cells else escaped
    with atomic_compressed_file(target) as stream:

        def line(number: int, cells: Sequence[str]) -> str:
            wrong = next((cell for cell in cells if any(sign in cell for sign in "\t\r\n")), None)
            if wrong is not None:
                hint = "write a .csv or .jsonl file"
                raise InputError("a cell of TSV cannot hold a TAB or a line break", path=target, row=number, hint=hint)
            return "\t".join(map(protect, cells)) + "\n"

        def write(rows: Sequence[NumberedRow]) -> None:
            for number, row in rows:
                first = columns.names is None
                values = columns.cells(number, row)
                if first:
                    stream.write(line(number, columns.names or ()).encode())
                stream.write(line(number, [cell_text(value) for value in values]).encode())

        yield write


@contextmanager
def _jsonl_writer(target: Path, raw_cells: bool) -> Iterator[Writer]:
    with atomic_compressed_file(target) as stream:

        def write(rows: Sequence[NumberedRow]) -> None:
            lines = [json.dumps(_plain(row), ensure_ascii=False, default=str) + "\n" for _, row in rows]
            stream.write("".join(lines).encode())

        yield write


@contextmanager
def _parquet_writer(target: Path, raw_cells: bool) -> Iterator[Writer]:
    """The types of the columns are those of the first rows; a later row that does not fit them is an error."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    remove_leftovers_of(target)
    with atomic_file(target) as aside, open(aside, "wb") as file:
        writer: Any = None
        columns = _Columns(target)

        def write(rows: Sequence[NumberedRow]) -> None:
            nonlocal writer
            schema = None if writer is None else writer.schema
            for number, row in rows:
                columns.cells(number, row)
            try:
                if schema is None:
                    names = columns.names or []
                    table = arrow.table({name: [row.get(name) for _, row in rows] for name in names})
                    schema = _with_strings_for_nulls(table.schema)
                table = arrow.Table.from_pylist([row for _, row in rows], schema=schema)
            except (arrow.ArrowException, TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                message = f"a value has another type than those before: {reason}"
                raise InputError(message, path=target, row=rows[0][0], hint="write a .jsonl file") from None
            if writer is None:
                writer = parquet.ParquetWriter(file, schema, compression="zstd")
            writer.write_table(table)

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            parquet.write_table(arrow.table({}), file)


def _with_strings_for_nulls(schema: Any) -> Any:
    """Return a schema whose columns that are still empty hold strings."""
    import pyarrow as arrow

    fields = [field.with_type(arrow.string()) if arrow.types.is_null(field.type) else field for field in schema]
    return arrow.schema(fields)


def _plain(value: Any) -> Any:
    """Return a value that JSON has: null for NaN and infinities, ISO dates."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def _move(text: io.StringIO, stream: IO[bytes]) -> None:
    """Write the text so far to the stream, and empty it."""
    stream.write(text.getvalue().encode())
    text.seek(0)
    text.truncate()


_WRITERS: dict[str, Any] = {
    ".csv": _csv_writer,
    ".tsv": _tsv_writer,
    ".jsonl": _jsonl_writer,
    ".parquet": _parquet_writer,
}
