"""Stream the rows of table files of any registered format, and find columns. Every error names file and row."""

from __future__ import annotations

from pathlib import Path

from endtask.errors import InputError, did_you_mean
from endtask.io.compression import COMPRESSIONS, bare_suffix
from endtask.io.input_files import InputFile, Note, OnError, ReadOptions, ReadProgress, stop
from endtask.io.rows.base import NumberedRows, Row, RowFormat, row_formats

__all__ = ["Row", "all_row_formats", "find_column", "known_suffixes", "read_rows", "row_format", "row_suffixes"]


def read_rows(
    path: str | Path,
    progress: ReadProgress | None = None,
    *,
    on_error: OnError = stop,
    note: Note | None = None,
) -> NumberedRows:
    """Yield (row number, row) of a table file.

    The number is the line an editor shows (a quoted CSV cell may continue below it); in other formats, the record.
    Calls `progress` with the number of bytes read since the last call. See `ReadOptions` for the other arguments.
    """
    return rows_of(Path(path), ReadOptions(progress, on_error, note))


def rows_of(path: InputFile, options: ReadOptions) -> NumberedRows:
    """Yield (row number, row) of a table file or of a member of an archive."""
    found = row_format(path)
    if found is None:
        raise InputError("unknown kind of file", path=path, hint=known_suffixes(row_suffixes()))
    return found.rows(path, options)


def row_format(path: InputFile) -> RowFormat | None:
    """Return the format of a table file by its suffix; None for other files."""
    suffix = bare_suffix(path)
    return next((found for found in all_row_formats() if suffix in found.suffixes), None)


def row_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all row formats."""
    return tuple(suffix for found in all_row_formats() for suffix in found.suffixes)


def known_suffixes(suffixes: tuple[str, ...]) -> str:
    """Return a hint that lists suffixes and compressions.

    >>> known_suffixes((".csv", ".tsv"))
    'known: .csv, .tsv, or those .gz .zst .xz .bz2'
    """
    return f"known: {', '.join(suffixes)}, or those {' '.join(COMPRESSIONS)}"


def all_row_formats() -> list[RowFormat]:
    """Return all row formats, by precedence and name."""
    found: list[RowFormat] = [row_formats.get(name)() for name in row_formats.names()]
    return sorted(found, key=lambda each: (each.precedence, each.name))


def find_column(
    columns: list[str], wanted: str | None, usual: tuple[str, ...], *, path: InputFile | str, role: str
) -> str | None:
    """Return the column for a role: `wanted` (which must exist), else the first usual name present."""
    if wanted is not None:
        if wanted not in columns:
            raise InputError(f"no column {wanted!r} for the {role}", path=path, hint=did_you_mean(wanted, columns))
        return wanted
    return next((name for name in usual if name in columns), None)
