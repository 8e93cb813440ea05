"""PDF files: the text of all pages, by pypdf (extra `pdf`)."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from importlib import metadata
from typing import Any, ClassVar

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, open_bytes, read_failure
from endtask.io.input_files import InputFile, import_extra


@document_formats.register("pdf")
class Pdf(DocumentFormat):
    """A PDF file: its pages as one text, and its title. Scanned pages have no text."""

    suffixes: ClassVar[tuple[str, ...]] = (".pdf",)

    def version(self, path: InputFile) -> str:
        """Return the version of the library."""
        _pypdf(path)
        return f"pypdf {metadata.version('pypdf')}"

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the file as one document."""
        pypdf = _pypdf(path)
        try:
            with open_bytes(path, options.progress) as file:
                content = file.read()
        except READ_FAILURES as error:
            options.on_error(read_failure(error, path))
            return
        try:
            document = _document(pypdf, content, path)
        except InputError as error:
            options.on_error(error)
        else:
            yield document


def _pypdf(path: InputFile) -> Any:
    pypdf = import_extra("pypdf", "pdf", path, purpose="reading PDF")
    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of each flaw that it can mend
    return pypdf


def _document(pypdf: Any, content: bytes, path: InputFile) -> FileDocument:
    """Return the document of a file; raises `InputError` with the page for a damaged one."""
    pages: list[str] = []
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        is_locked = reader.is_encrypted and not reader.decrypt("")
        if not is_locked:
            pages.extend(page.extract_text() for page in reader.pages)
            return FileDocument("", ("\n\n".join(pages),), title=_title(reader))
    except Exception as error:  # pypdf raises errors of many kinds for damaged files
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        message = f"not a readable PDF file, page {len(pages) + 1}: {reason}"
        raise InputError(message, path=path) from None
    raise InputError("the file needs a password", path=path)


def _title(reader: Any) -> str | None:
    """Return the title in the file's metadata, if it is text."""
    title = reader.metadata.title if reader.metadata else None
    return title.strip() or None if isinstance(title, str) else None
