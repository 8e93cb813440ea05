"""Read the documents of a source in order, from files, the hub or installed documentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from endtask.corpus.files import documents_of, version_of
from endtask.corpus.formats.base import DocumentOptions, FileDocument
from endtask.corpus.links import Links
from endtask.corpus.rows import row_documents
from endtask.corpus.sources import DOCSTRINGS, Source, SourceFile
from endtask.errors import InputError
from endtask.io.input_files import ReadProgress, Unskippable, stop

SHOWN = 5
"""How many messages or names are stored."""


class SourceDocument(NamedTuple):
    """A document before it is cut into passages: the text is the concatenation of `parts`.

    `location` is the file and row, unique inside the source.
    """

    id: str
    location: str
    parts: Iterable[str]
    title: str | None = None
    license: str | None = None
    links: Links = ()


@dataclass
class Skipped:
    """Counts what could not be read and was skipped, and stores the first messages."""

    count: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, error: InputError) -> None:
        """Count an error."""
        self.count += 1
        if len(self.messages) < SHOWN:
            self.messages.append(str(error))


def read_source(
    source: Source,
    progress: ReadProgress | None = None,
    *,
    with_links: bool = False,
    skipped: Skipped | None = None,
    processes: int = 1,
) -> Iterator[SourceDocument]:
    """Stream the documents of a source; calls `progress` with the number of bytes read since the last call.

    Reads links only with `with_links`: in other corpora a column of that name may hold anything. What cannot be read
    is counted in `skipped` where the source skips it, and an `InputError` elsewhere.
    """
    on_error = (skipped or Skipped()).add if source.skip_errors else stop
    options = DocumentOptions(progress, on_error, None, source.text, with_links, processes)
    if source.path == DOCSTRINGS:
        yield from _read_docstrings(source)
    elif not source.files:
        from endtask.corpus.hub import hub_rows

        for document in row_documents(hub_rows(source.path), source.path, options):
            yield _named(source, document, document.key.removeprefix("#"))
    for file in source.files:
        with file.open_copy() as path:
            for document in _documents(path, file, options):
                yield _named(source, document, f"{file.label}{document.key}")


def _documents(path: Path, file: SourceFile, options: DocumentOptions) -> Iterator[FileDocument]:
    """Yield the documents of a file; errors about the copy of a remote file name its address."""
    if file.remote is None:
        yield from documents_of(path, options)
        return

    def on_error(error: InputError) -> None:
        options.on_error(_at_address(error, path, file))

    try:
        yield from documents_of(path, options if options.on_error is stop else replace(options, on_error=on_error))
    except InputError as error:
        raise _at_address(error, path, file) from None


def _at_address(error: InputError, path: Path, file: SourceFile) -> InputError:
    address = None if error.path is None else str(error.path).replace(str(path), file.name)
    hint = None if error.hint is None else error.hint.replace(str(path), file.name)
    return type(error)(error.message, path=address, row=error.row, key=error.key, hint=hint)


def source_contents(source: Source) -> dict[str, Any]:
    """Return everything that determines the documents of a source: the same for a copy of its files elsewhere."""
    head: dict[str, Any] = {"name": source.name, "text": source.text, "license": source.license}
    if source.skip_errors:
        head["on_error"] = "skip"
    if source.path == DOCSTRINGS:
        from endtask.corpus.docstrings import docstring_fingerprint

        return {**head, "docstrings": docstring_fingerprint()}
    if not source.files:
        from endtask.corpus.hub import hub_digests

        return {**head, "hub": hub_digests(source.path)}
    return {**head, "files": [_file_contents(file, skip_errors=source.skip_errors) for file in source.files]}


def _file_contents(file: SourceFile, *, skip_errors: bool) -> list[Any]:
    """Return label, size and digest of a file, and what its reader depends on; of an unreadable one what there is."""
    parts: list[Any] = [file.label, file.size()]
    try:
        parts.append(file.digest())
        version = version_of(file.path)
        return parts if version is None else [*parts, version]
    except Unskippable:
        raise
    except InputError:
        if not skip_errors:
            raise
        return parts


def _read_docstrings(source: Source) -> Iterator[SourceDocument]:
    from endtask.corpus.docstrings import docstring_documents

    for document in docstring_documents():
        document_id, license = _prefixed(source, document.id), document.license or source.license
        yield SourceDocument(document_id, document.id, (document.text,), document.title, license)


def _named(source: Source, document: FileDocument, location: str) -> SourceDocument:
    """Return a document of a file with its id in the source, which is its location unless the file gives one."""
    _, parts, given_id, title, license, links = document
    document_id = _prefixed(source, given_id or location)
    return SourceDocument(document_id, location, parts, title, license or source.license, links)


def _prefixed(source: Source, given_id: str) -> str:
    prefix = f"{source.name}/"
    return given_id if given_id.startswith(prefix) else prefix + given_id
