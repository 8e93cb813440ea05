"""HTML pages: the main text, by Resiliparse (extra `html`)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import ClassVar

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, open_bytes, read_failure
from endtask.io.input_files import InputFile, import_extra

_PURPOSE = "reading HTML"


@document_formats.register("html")
class Html(DocumentFormat):
    """A page: its main text without navigation, and its title."""

    suffixes: ClassVar[tuple[str, ...]] = (".html", ".htm", ".xhtml")

    def version(self, path: InputFile) -> str:
        """Return the version of the extractor."""
        return extractor_version(path)

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the page as one document."""
        import_extra("resiliparse", "html", path, purpose=_PURPOSE)
        try:
            with open_bytes(path, options.progress) as file:
                content = file.read()
        except READ_FAILURES as error:
            options.on_error(read_failure(error, path))
            return
        try:
            text, title = main_text(content)
        except ValueError as error:
            options.on_error(InputError(f"not readable HTML: {error}", path=path))
            return
        yield FileDocument("", (text,), title=title)


def extractor_version(path: InputFile) -> str:
    """Return name and version of the extractor; raises `InputError` where it is missing."""
    import_extra("resiliparse", "html", path, purpose=_PURPOSE)
    return f"resiliparse {metadata.version('resiliparse')}"


def main_text(content: bytes, encoding: str | None = None) -> tuple[str, str | None]:
    """Return the main text and the title of a page; all text where the extractor finds no main text.

    The encoding is that given, or detected from the content. Raises `ValueError` for pages that cannot be parsed.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding
    from resiliparse.parse.html import HTMLTree

    detected = encoding or detect_encoding(content, from_html_meta=True) or "utf-8"
    decoded = bytes_to_str(content, detected)
    tree = HTMLTree.parse(decoded)
    text: str = extract_plain_text(tree, main_content=True, alt_texts=False)
    text = text or extract_plain_text(tree, alt_texts=False)
    return text, (tree.title or "").strip() or None
