"""Excel workbooks, by openpyxl (extra `excel`)."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from endtask.errors import InputError, a_few
from endtask.io.compression import READ_FAILURES, open_bytes, read_failure
from endtask.io.input_files import InputFile, ReadOptions, import_extra
from endtask.io.rows.base import NumberedRows, Row, RowFormat, row_formats

Cells = tuple[Any, ...]


@row_formats.register("excel")
class Excel(RowFormat):
    """The rows of a workbook's first sheet; its first row that is not empty names the columns."""

    suffixes: ClassVar[tuple[str, ...]] = (".xlsx", ".xlsm")

    def rows(self, path: InputFile, options: ReadOptions) -> NumberedRows:
        """Yield the rows that are not empty, numbered as in the sheet."""
        openpyxl = import_extra("openpyxl", "excel", path, purpose="reading Excel files")
        header: dict[int, str] | None = None
        for number, cells in enumerate(_sheet(openpyxl, path, options), start=1):
            if all(cell is None for cell in cells):
                continue
            if header is None:
                header = _header(cells, path, number)
            else:
                yield from _checked_row(header, cells, path, number, options)


def _sheet(openpyxl: Any, path: InputFile, options: ReadOptions) -> Iterator[Cells]:
    """Yield the values of the first sheet's rows."""
    try:
        with open_bytes(path, options.progress) as file:
            content = io.BytesIO(file.read())
    except READ_FAILURES as error:
        options.on_error(read_failure(error, path))
        return
    try:
        sheets = openpyxl.load_workbook(content, read_only=True, data_only=True).worksheets
        if sheets:
            _note_others(sheets, path, options)
            yield from sheets[0].iter_rows(values_only=True)
    except MemoryError:
        raise
    except Exception as error:  # the library has errors of many kinds for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "save it as .xlsx again"
        options.on_error(InputError(f"not a readable Excel file: {reason}", path=path, hint=hint))


def _note_others(sheets: Sequence[Any], path: InputFile, options: ReadOptions) -> None:
    if len(sheets) > 1 and options.note:
        names = a_few((repr(sheet.title) for sheet in sheets[1:]), 3)
        options.note(f"{path.name}: sheet {sheets[0].title!r} was read, and not {names}")


def _header(cells: Cells, path: InputFile, number: int) -> dict[int, str]:
    """Return the names of the columns by index."""
    header = {index: str(cell) for index, cell in enumerate(cells) if cell is not None}
    names = list(header.values())
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are named {twice!r}", path=path, row=number)
    return header


def _checked_row(
    header: dict[int, str], cells: Cells, path: InputFile, number: int, options: ReadOptions
) -> Iterator[tuple[int, Row]]:
    """Yield the row with its cells by column, if all cells are under a name; empty cells are None."""
    nameless = next((index for index, cell in enumerate(cells) if cell is not None and index not in header), None)
    if nameless is None:
        values = {name: cells[index] if index < len(cells) else None for index, name in header.items()}
        yield number, {name: _plain(value) for name, value in values.items()}
    else:
        options.on_error(InputError(f"cell {nameless + 1} is in a column without a name", path=path, row=number))


def _plain(value: Any) -> Any:
    """Return a cell as JSON holds it; dates are texts."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | None) else str(value)
