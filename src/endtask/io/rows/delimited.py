"""CSV, whose delimiter is guessed, and TSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import ClassVar

from endtask.errors import InputError
from endtask.io.input_files import InputFile, ReadOptions
from endtask.io.lines import lines_of
from endtask.io.rows.base import NumberedRows, Row, RowFormat, row_formats

csv.field_size_limit(1 << 30)

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What separates the cells of a CSV file, the first that fits; and the plural for messages."""
_SAMPLED_LINES = 200


@row_formats.register("csv")
class Csv(RowFormat):
    """Cells between commas (or `;`, tabs, `|`) with quotes; the first row names the columns."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    precedence = 0

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the rows, numbered by their first lines."""
        lines = ((number, f"{line}\n") for number, line in lines_of(path, options))
        sample = list(islice(lines, 1))
        if sample and "," not in sample[0][1]:
            sample += islice(lines, _SAMPLED_LINES)
        delimiter = guess_delimiter([line for _, line in sample])
        if delimiter != "," and options.note:
            options.note(f"{path.name}: cells are separated by {DELIMITERS[delimiter]}")
        header: list[str] | None = None
        for first_line, cells in _records(_Lines(chain(sample, lines)), delimiter, path, options):
            if header is None:
                header = _checked_header(cells, path)
            elif cells:
                yield from _checked_row(header, cells, path, first_line, options)


def guess_delimiter(lines: Sequence[str]) -> str:
    r"""Return the first delimiter that gives all records of a CSV file's start equally many cells, at least two.

    >>> guess_delimiter(["text;label\n", '"a, b";1\n']), guess_delimiter(["text\n", "a; b\n"])
    (';', ',')
    """
    if not lines or "," in lines[0]:
        return ","
    for delimiter in DELIMITERS:
        try:
            records = [cells for cells in csv.reader(lines, delimiter=delimiter) if cells]
        except csv.Error:  # the reader of the rows names the row
            continue
        if len(lines) > _SAMPLED_LINES:
            records.pop()  # its end may be missing
        widths = {len(cells) for cells in records}
        if len(widths) == 1 and widths != {1}:
            return delimiter
    return ","


class _Lines:
    """Iterates over lines; `first` is the number of the first line since it was last set to None."""

    def __init__(self, numbered: Iterator[tuple[int, str]]) -> None:
        self._numbered = numbered
        self.first: int | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in self._numbered:
            self.first = self.first or number
            yield line


def _records(lines: _Lines, delimiter: str, path: InputFile, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, cells); a record that cannot be parsed is an error."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        lines.first = None
        try:
            cells = next(reader, None)
        except csv.Error as error:
            options.on_error(InputError(f"not valid CSV: {error}", path=path, row=lines.first))
            continue
        if cells is None:
            return
        yield lines.first or 1, cells


@row_formats.register("tsv")
class Tsv(RowFormat):
    """Cells between tabs without quotes; the first line names the columns.

    Published TSV files have stray quotes far more often than quoted cells; a reader that interprets quotes would lose
    rows after one.
    """

    suffixes: ClassVar[tuple[str, ...]] = (".tsv",)
    precedence = 0

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the rows, numbered by their lines."""
        header: list[str] | None = None
        for number, line in lines_of(path, options):
            if header is None:
                header = _checked_header(line.split("\t"), path)
            elif line:
                yield from _checked_row(header, line.split("\t"), path, number, options)


def _checked_header(header: list[str], path: InputFile) -> list[str]:
    if not any(header):
        raise InputError("the first line must name the columns", path=path, row=1)
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}", path=path, row=1)
    return header


def _checked_row(
    header: list[str], cells: list[str], path: InputFile, number: int, options: ReadOptions
) -> Iterator[tuple[int, Row]]:
    """Yield the row with its cells by column, if it has a cell for each."""
    if len(cells) == len(header):
        yield number, dict(zip(header, cells, strict=True))
    else:
        count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        options.on_error(InputError(f"{count} where the header has {len(header)}", path=path, row=number))
