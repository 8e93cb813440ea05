"""The documents of tables: the column of the text, and what else a row may hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from endtask.corpus.formats.base import DocumentOptions, FileDocument
from endtask.corpus.links import LINKS_COLUMN, read_links
from endtask.errors import InputError, did_you_mean, nearest
from endtask.io.input_files import InputFile, Unskippable
from endtask.io.rows.base import NumberedRows, Row
from endtask.io.tables import find_column

TEXT_COLUMNS = ("text", "content", "body", "abstract", "passage", "document", "sentence")


def row_documents(rows: NumberedRows, path: InputFile | str, options: DocumentOptions) -> Iterator[FileDocument]:
    """Yield a document for each row; the column of the text is found in the first row."""
    column: str | None = None
    for number, row in rows:
        if column is None:
            column = _column_of(row, path, options)
        try:
            document = _document_of(row, number, column, path, options)
        except InputError as error:
            options.on_error(error)
        else:
            yield document


def _column_of(row: Row, path: InputFile | str, options: DocumentOptions) -> str:
    hint = f"name it with the path: corpus.sources=[{{path: {path}, text: COLUMN}}]"
    try:
        return text_column(row, options.text, path=path, key="corpus.sources", hint=hint)
    except InputError as error:
        if options.text is None:
            raise
        raise Unskippable(error.message, path=path, hint=error.hint) from None


def _document_of(row: Row, number: int, column: str, path: InputFile | str, options: DocumentOptions) -> FileDocument:
    text = text_cell(row, column, path=path, row_number=number)
    links = read_links(row.get(LINKS_COLUMN), text, path=path, row=number) if options.with_links else ()
    license = _optional(row.get("licence")) or _optional(row.get("license"))
    return FileDocument(f"#{number}", (text,), _optional(row.get("id")), _optional(row.get("title")), license, links)


def _optional(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def text_column(row: Row, named: str | None, *, path: InputFile | str, key: str, hint: str | None = None) -> str:
    """Return the column of the text: the named one, or the first usual name; raises `InputError` without one."""
    column = find_column(list(row), named, TEXT_COLUMNS, path=path, role="text")
    if column is None:
        close = next((name for name in row if nearest(name, TEXT_COLUMNS)), None)
        hint = hint or (f"rename {close!r} to 'text'" if close else f"known: {', '.join(TEXT_COLUMNS)}")
        raise InputError(f"no column for the text among {', '.join(row) or 'none'}", path=path, key=key, hint=hint)
    return column


def text_cell(row: Row, column: str, *, path: InputFile | str, row_number: int) -> str:
    """Return the text in a column of a row; raises `InputError` for anything else."""
    text = row.get(column)
    if isinstance(text, str):
        return text
    if column not in row:
        raise InputError(f"no column {column!r}", path=path, row=row_number, hint=did_you_mean(column, row))
    kind = "null" if text is None else f"of type {type(text).__name__}"
    raise InputError(f"column {column!r} is {kind}, not a text", path=path, row=row_number)
