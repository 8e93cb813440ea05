"""Stream the rows of CSV, TSV, JSON Lines, Parquet and text files, or look up a few rows of a Parquet table.

Every error names file and row.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
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


_MOST_COMPARED = 500


def rows_where(path: Path, column: str, values: Collection[str], columns: list[str] | None = None) -> Iterator[Row]:
    """Stream the rows whose cell is one of `values` or, in a column of lists, contains one of them.

    Reads the other columns only in row groups with such a row.
    """
    import pyarrow as arrow

    wanted = arrow.array(sorted(values), arrow.string())
    with _opened(path, column) as file:
        for group in range(file.num_row_groups):
            indices = _matching(file.read_row_group(group, columns=[column]).column(0).combine_chunks(), wanted)
            if len(indices):
                yield from file.read_row_group(group, columns=columns).take(indices).to_pylist()


def nearest_value(path: Path, column: str, text: str) -> str | None:
    """Return the cell of a string column that is closest in spelling to `text`; None if there is no cell."""
    with _opened(path, column) as file:
        return nearest_of(file.read(columns=[column]).column(0), text)


def nearest_of(cells: Any, text: str) -> str | None:
    """Return the element of an Arrow array that is closest in spelling to `text`; of equally close ones, the first.

    Compares only the elements that share the longest prefix or the longest suffix with `text`, at most some hundreds.

    >>> import pyarrow
    >>> nearest_of(pyarrow.array(["abstracts/p6", "abstracts/p7", "books/p6"]), "abstract/p7")
    'abstracts/p7'
    """
    import pyarrow.compute as compute

    lengths = range(len(text), 0, -1)
    same_start = _first_matches(cells, compute.starts_with, (text[:length] for length in lengths))
    same_end = _first_matches(cells, compute.ends_with, (text[-length:] for length in lengths))
    compared = [*same_start, *same_end] or cells.slice(0, _MOST_COMPARED).to_pylist()
    return max(compared, key=lambda cell: SequenceMatcher(None, cell, text).ratio(), default=None)


def _first_matches(cells: Any, test: Callable[[Any, str], Any], affixes: Iterable[str]) -> list[str]:
    """Return the cells that match the first affix that any cell matches."""
    for affix in affixes:
        matches = cells.filter(test(cells, affix))
        if len(matches):
            return list(matches.slice(0, _MOST_COMPARED).to_pylist())
    return []


def _matching(cells: Any, wanted: Any) -> Any:
    """Return the ascending indices of the cells that are, or contain, a wanted string."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    if not types.is_list(cells.type):
        return compute.indices_nonzero(compute.is_in(cells, value_set=wanted))
    holds = compute.is_in(compute.list_flatten(cells), value_set=wanted)
    return compute.unique(compute.filter(compute.list_parent_indices(cells), holds))


@contextmanager
def _opened(path: Path, column: str) -> Iterator[Any]:
    """Open a table, which must have the column."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            if column not in file.schema_arrow.names:
                raise InputError(f"no column {column!r}", path=path, hint="was the file changed by hand?")
            yield file
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"not a readable Parquet file: {reason}", path=path) from None
