"""Find the format of a file of a corpus, and read its documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.corpus.rows import row_documents
from endtask.errors import InputError
from endtask.io.input_files import InputFile, Unskippable, stop
from endtask.io.rows.base import RowFormat
from endtask.io.tables import all_row_formats, known_suffixes, row_format, rows_of
from endtask.registry import code_digest

_SKIP_HINT = "corpus.on_error=skip leaves it out"


def document_format(path: InputFile) -> DocumentFormat | None:
    """Return the format of a file whose name is that of a document format; None for others."""
    formats: list[DocumentFormat] = [document_formats.get(name)() for name in document_formats.names()]
    return min((found for found in formats if found.matches(path)), key=lambda found: found.precedence, default=None)


def format_of(path: InputFile) -> DocumentFormat | RowFormat | None:
    """Return the format of a file by its name; None where a corpus cannot be made of it."""
    rows = row_format(path)
    return document_format(path) or (rows if rows and rows.has_text else None)


def is_readable(path: InputFile) -> bool:
    """Return whether a file that was found in a folder can be read, by its name and, where needed, its content."""
    found = format_of(path)
    return found is not None and found.recognizes(path)


def opens_file(path: InputFile) -> bool:
    """Return whether the content of a file, and not only its name, says whether it or its members are read."""
    found = format_of(path)
    by_name = (RowFormat.recognizes, DocumentFormat.recognizes, DocumentFormat.unread_members)
    methods = [getattr(type(found), name, None) for name in ("recognizes", "unread_members")]
    return any(method is not None and method not in by_name for method in methods)


def is_one_document(path: InputFile) -> bool:
    """Return whether the file is one document."""
    found = document_format(path)
    return found is not None and found.is_one_document


def version_of(path: InputFile) -> str | None:
    """Return what the documents of a file depend on in addition to it, such as a plug-in's code; None for nothing."""
    found = format_of(path)
    version = found.version(path) if isinstance(found, DocumentFormat) else None
    return ", ".join(filter(None, (version, code_digest(type(found))))) or None


def unread_members(path: InputFile) -> list[str]:
    """Return the names of the members of an archive that are not read."""
    found = document_format(path)
    return list(found.unread_members(path)) if found else []


def known_formats() -> str:
    """Return a hint that lists the suffixes of all formats."""
    documents = [suffix for name in document_formats.names() for suffix in document_formats.get(name).suffixes]
    tables = [suffix for found in all_row_formats() if found.has_text for suffix in found.suffixes]
    return known_suffixes((*tables, *documents))


def documents_of(path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
    """Yield the documents of a file; calls `options.on_error` for what cannot be read."""
    if options.on_error is stop:
        options = replace(options, on_error=_stop_with_hint)
    found = format_of(path)
    try:
        if isinstance(found, DocumentFormat):
            yield from found.documents(path, options)
        else:
            yield from row_documents(rows_of(path, options), path, options)
    except Unskippable:
        raise
    except InputError as error:
        options.on_error(error)


def _stop_with_hint(error: InputError) -> None:
    """Raise the error with a hint at the setting that skips what cannot be read."""
    hint = error.hint or ""
    if not hint.endswith(_SKIP_HINT):
        hint = f"{hint}; {_SKIP_HINT}" if hint else _SKIP_HINT
    raise InputError(error.message, path=error.path, row=error.row, key=error.key, hint=hint) from None
