"""Stream the rows of CSV, TSV, JSON Lines, Parquet and text files; every error names file and row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from endtask.errors import InputError, did_you_mean
from endtask.io.compression import READ_FAILURES, ReadProgress, bare_suffix, open_bytes, read_failure

Row = dict[str, Any]
_Reader = Callable[[Path, ReadProgress | None], Iterator[tuple[int, Row]]]

csv.field_size_limit(1 << 30)
_decode = json.JSONDecoder().raw_decode


def read_rows(path: str | Path, progress: ReadProgress | None = None) -> Iterator[tuple[int, Row]]:
    """Yield (row number, row) of a table file.

    The number is the line an editor shows (a quoted CSV cell may continue below it); for Parquet, the record.
    Calls `progress` with the number of bytes read since the last call.
    """
    path = Path(path)
    reader = _READERS.get(bare_suffix(path))
    if reader is None:
        known = f"known: {', '.join(ROW_SUFFIXES)}, or those .gz .zst .xz"
        raise InputError("unknown kind of file", path=path, hint=known)
    return reader(path, progress)


def read_lines(path: str | Path, progress: ReadProgress | None = None) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a UTF-8 text file, without the line ends."""
    path = Path(path)
    number = 0
    encoding = "utf-8-sig"  # only the first line may start with a byte order mark
    with open_bytes(path, progress) as file:
        try:
            for line in file:
                number += 1
                yield number, line.decode(encoding).rstrip("\r\n")
                encoding = "utf-8"
        except UnicodeDecodeError as error:
            message = f"not valid UTF-8 (byte {error.start + 1} of the line)"
            raise InputError(message, path=path, row=number, hint="save the file as UTF-8") from None
        except READ_FAILURES as error:
            raise read_failure(error, path, number + 1) from None


def _read_jsonl(path: Path, progress: ReadProgress | None) -> Iterator[tuple[int, Row]]:
    for number, line in read_lines(path, progress):
        line = line.strip()
        if not line:
            continue
        try:
            row, end = _decode(line)  # faster than `json.loads`, which searches for white space at both ends
            if end < len(line):
                raise json.JSONDecodeError("Extra data", line, end)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", str(error))
            raise InputError(f"not valid JSON: {reason}", path=path, row=number, hint="one object per line") from None
        if not isinstance(row, dict):
            raise InputError("not a JSON object", path=path, row=number, hint="one object per line")
        if "\\ud" in line or "\\uD" in line:
            _check_surrogates(row, path, number)
        yield number, row


def _check_surrogates(row: Row, path: Path, number: int) -> None:
    """Raise an InputError for half of a surrogate pair, which JSON allows but no file, hash or tokenizer accepts."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise InputError(f"half of a character (\\u{ord(half):04x})", path=path, row=number) from None


def _read_csv(path: Path, progress: ReadProgress | None) -> Iterator[tuple[int, Row]]:
    reader = csv.reader((line + "\n" for _, line in read_lines(path, progress)), strict=True)
    header: list[str] | None = None
    first_line = 1
    try:
        for cells in reader:
            if header is None:
                header = _checked_header(cells, path)
            elif cells:
                yield first_line, _named_cells(header, cells, path, first_line)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"not valid CSV: {error}", path=path, row=first_line) from None


def _read_tsv(path: Path, progress: ReadProgress | None) -> Iterator[tuple[int, Row]]:
    # Published TSV files have stray quotes far more often than quoted cells; a reader that interprets
    # quotes would lose rows after one.
    header: list[str] | None = None
    for number, line in read_lines(path, progress):
        if header is None:
            header = _checked_header(line.split("\t"), path)
        elif line:
            yield number, _named_cells(header, line.split("\t"), path, number)


def _checked_header(header: list[str], path: Path) -> list[str]:
    if not any(header):
        raise InputError("the first line must name the columns", path=path, row=1)
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}", path=path, row=1)
    return header


def _named_cells(header: list[str], cells: list[str], path: Path, number: int) -> Row:
    if len(cells) != len(header):
        found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        raise InputError(f"{found} where the header has {len(header)}", path=path, row=number)
    return dict(zip(header, cells, strict=True))


def _read_parquet(path: Path, progress: ReadProgress | None) -> Iterator[tuple[int, Row]]:
    import pyarrow as arrow

    number = 0
    reported = 0
    try:
        with open_bytes(path) as file:
            table = _open_parquet(path, file.read() if bare_suffix(path) != path.suffix.lower() else None)
        size, rows = path.stat().st_size, table.metadata.num_rows
        # Small batches: a record may be as long as a book.
        for batch in table.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield number, row
            if progress:
                progress(size * number // rows - reported)
                reported = size * number // rows
    except UnicodeDecodeError:
        raise InputError("not valid UTF-8", path=path, row=number + 1) from None
    except arrow.ArrowException as error:
        reason = str(error).splitlines()[0]
        row = number + 1 if number else None
        raise InputError(f"not a readable Parquet file: {reason}", path=path, row=row) from None
    except READ_FAILURES as error:
        raise read_failure(error, path) from None


def _open_parquet(path: Path, content: bytes | None) -> Any:
    """Open a Parquet file, or its content if the file itself was compressed."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    source = path if content is None else arrow.BufferReader(content)
    return parquet.ParquetFile(source, buffer_size=1 << 20)


_READERS: dict[str, _Reader] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
}
ROW_SUFFIXES = tuple(_READERS)


def find_column(
    columns: list[str], wanted: str | None, usual: tuple[str, ...], *, path: Path | str, role: str
) -> str | None:
    """Return the column for a role: `wanted` (which must exist), else the first usual name present."""
    if wanted is not None:
        if wanted not in columns:
            raise InputError(f"no column {wanted!r} for the {role}", path=path, hint=did_you_mean(wanted, columns))
        return wanted
    return next((name for name in usual if name in columns), None)
