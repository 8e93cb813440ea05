"""Web archives (WARC) and their texts (WET), by warcio (extra `warc`)."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from importlib import metadata
from typing import Any, ClassVar

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.corpus.formats.html import extractor_version, main_text
from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, bare_suffix, open_bytes, read_failure
from endtask.io.input_files import InputFile, import_extra

_PAGES = ("text/html", "application/xhtml+xml")


@document_formats.register("warc")
class Warc(DocumentFormat):
    """Records with text: pages of responses with status 200, plain text, and the conversions of WET files."""

    suffixes: ClassVar[tuple[str, ...]] = (".warc", ".wet")
    is_one_document = False

    def version(self, path: InputFile) -> str:
        """Return the versions of the libraries; WET files hold text alone."""
        _warcio(path)
        pages = f", {extractor_version(path)}" if bare_suffix(path) == ".warc" else ""
        return f"warcio {metadata.version('warcio')}{pages}"

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the records with text, by number and address."""
        warcio = _warcio(path)
        number = 0
        try:
            with open_bytes(path, options.progress) as file:
                for record in warcio.ArchiveIterator(file):
                    number += 1
                    yield from _document_of(record, number, path, options)
        except READ_FAILURES as error:
            options.on_error(read_failure(error, path, number + 1))
        except (InputError, MemoryError):
            raise
        except Exception as error:  # the library has errors of many kinds for damaged records
            options.on_error(_damaged(error, path, number + 1))


def _warcio(path: InputFile) -> Any:
    return import_extra("warcio", "warc", path, purpose="reading web archives")


def _document_of(record: Any, number: int, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
    """Yield the document of a record, if it has text."""
    try:
        text_and_title = _text_of(record)
    except ValueError as error:  # of the parser of pages, or of the decompressor of contents
        options.on_error(_damaged(error, path, number))
        return
    if text_and_title is not None:
        text, title = text_and_title
        yield FileDocument(f"#{number}", (text,), record.rec_headers.get_header("WARC-Target-URI"), title)


def _damaged(error: Exception, path: InputFile, number: int) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(f"not a readable WARC record: {reason}", path=path, row=number)


def _text_of(record: Any) -> tuple[str, str | None] | None:
    """Return text and title of a record; None for records of other kinds."""
    is_response = record.rec_type == "response"
    if record.rec_type not in ("response", "resource", "conversion"):
        return None
    headers = record.http_headers if is_response else record.rec_headers
    if headers is None or (is_response and headers.get_statuscode() != "200"):
        return None
    kind, _, parameters = (headers.get_header("Content-Type") or "text/plain").partition(";")
    if kind.strip().lower() in _PAGES:
        return main_text(record.content_stream().read(), _charset(parameters))
    if kind.strip().lower() == "text/plain":
        return record.content_stream().read().decode(_charset(parameters) or "utf-8", errors="replace"), None
    return None


def _charset(parameters: str) -> str | None:
    """Return the encoding that a content type names; None for unknown ones.

    >>> _charset(' charset="ISO-8859-1"'), _charset(""), _charset("charset=klingon")
    ('iso8859-1', None, None)
    """
    _, _, name = parameters.lower().partition("charset=")
    try:
        return codecs.lookup(name.split(";")[0].strip(" \"'")).name
    except LookupError:
        return None
