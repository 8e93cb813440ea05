"""Wikipedia dumps (MediaWiki XML): articles as plain text with links, on all cores, in constant memory.

The main process cuts the file into chunks of some pages each, without parsing them: the streams of a bzip2 multistream
dump, still compressed, or decompressed text. Worker processes parse chunks; their order is that of the file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib import metadata
from typing import IO, ClassVar, NamedTuple
from xml.etree import ElementTree

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.corpus.formats.wikitext import FORMAT, plain_text
from endtask.corpus.links import Links
from endtask.corpus.parallel import ordered_map
from endtask.errors import InputError
from endtask.io.compression import READ_FAILURES, Bzip2Stream, open_bytes, read_failure
from endtask.io.input_files import InputFile, import_extra

_NAMES = re.compile(r"\.xml(-p\d+p\d+)?(\.(gz|zst|xz|bz2))?$|-multistream-index.*\.txt", re.IGNORECASE)
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_PAGE, _PAGE_END = b"<page>", b"</page>"
_NAMESPACE = re.compile(r'<namespace key="(?:-2|6|14)"[^>]*>([^<]+)</namespace>')
_CHUNK = 1 << 20
_LARGEST_STREAM = 16 << 20
"""Bytes, compressed; a bzip2 file with a larger stream has only one, as a rule, and is decompressed serially."""
_HEAD = 1 << 16


@document_formats.register("wikipedia")
class Wikipedia(DocumentFormat):
    """The articles of a dump by page id: plain text, title and links; no redirects, talk pages or categories."""

    suffixes: ClassVar[tuple[str, ...]] = (".xml",)
    precedence = 0  # it knows the indexes of dumps, which look like text files
    is_one_document = False

    def matches(self, path: InputFile) -> bool:
        """Return whether the name is that of an XML file, of a part of a dump, or of a dump's index (never read)."""
        return _NAMES.search(path.name) is not None

    def recognizes(self, path: InputFile) -> bool:
        """Return whether the file is a dump, or too damaged to tell."""
        try:
            return "<mediawiki" in _head(path)
        except InputError:
            return True

    def version(self, path: InputFile) -> str:
        """Return the versions of the parser and of the conversion."""
        import_extra("mwparserfromhell", "wikipedia", path, purpose="reading Wikipedia dumps")
        return f"wikitext {FORMAT}, mwparserfromhell {metadata.version('mwparserfromhell')}"

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the articles in the order of the file."""
        import_extra("mwparserfromhell", "wikipedia", path, purpose="reading Wikipedia dumps")
        head = _head(path)
        if "<mediawiki" not in head:
            raise InputError("not a Wikipedia dump: no <mediawiki> at its start", path=path)
        hidden = tuple(name.lower() for name in _NAMESPACE.findall(head))
        for page in _pages(path, hidden, options):
            links = page.links if options.with_links else ()
            yield FileDocument(f"#{page.id}", (page.text,), page.id, page.title, links=links)


class Page(NamedTuple):
    """An article."""

    id: str
    title: str
    text: str
    links: Links


class Chunk(NamedTuple):
    """Some bytes of a dump, as they are or as bzip2 streams; `offset` is where they start in the file, for messages."""

    content: bytes
    offset: int
    is_compressed: bool
    hidden: tuple[str, ...]


class Parsed(NamedTuple):
    """The pages that begin and end in a chunk, the bytes before and after them, and what is wrong with others."""

    before: bytes
    pages: list[Page]
    after: bytes
    errors: list[str]
    has_pages: bool = True


def _head(path: InputFile) -> str:
    """Return the start of a file as text, up to the first damage."""
    head = b""
    with open_bytes(path) as file:
        try:
            while len(head) < _HEAD and (content := file.read1(_HEAD)):
                head += content
        except READ_FAILURES as error:
            if not head:
                raise read_failure(error, path) from None
    return head.decode(errors="replace")


def _pages(path: InputFile, hidden: tuple[str, ...], options: DocumentOptions) -> Iterator[Page]:
    """Yield the articles of all chunks, and those between two chunks."""
    rest = b""  # after the last whole page
    for parsed in ordered_map(parse_chunk, _chunks(path, hidden, options), options.processes):
        if not parsed.has_pages:
            rest += parsed.before
            continue
        for found in (parse_pages(rest + parsed.before, hidden), parsed):
            yield from _checked(found, path, options)
        rest = parsed.after
    last = parse_pages(rest, hidden)
    yield from _checked(last, path, options)
    end = last.after if last.has_pages else rest
    if _PAGE in end or b"</mediawiki>" not in end:
        options.on_error(InputError("the file is cut off", path=path, hint="copy or download it again"))


def _checked(parsed: Parsed, path: InputFile, options: DocumentOptions) -> Iterator[Page]:
    """Yield the pages of a chunk and report its errors."""
    for error in parsed.errors:
        options.on_error(InputError(error, path=path))
    yield from parsed.pages


def parse_chunk(chunk: Chunk) -> Parsed:
    """Parse a chunk in a worker process; damage is returned, not raised."""
    content = chunk.content
    if chunk.is_compressed:
        try:
            content = io.BufferedReader(_Raw(Bzip2Stream(io.BytesIO(content)))).read()
        except READ_FAILURES as error:
            reason = "the file is cut off" if isinstance(error, EOFError) else f"cannot be decompressed: {error}"
            return Parsed(b"", [], b"", [f"{reason} (the stream at byte {chunk.offset:,})"])
    return parse_pages(content, chunk.hidden)


def parse_pages(content: bytes, hidden: tuple[str, ...]) -> Parsed:
    """Parse all whole pages of some bytes."""
    start, end = content.find(_PAGE), content.rfind(_PAGE_END)
    if start < 0 or end < start:
        return Parsed(content, [], b"", [], has_pages=False)
    pages: list[Page] = []
    errors: list[str] = []
    for source in content[start:end].split(_PAGE_END):
        before, tag, inside = source.partition(_PAGE)
        if not tag:
            errors.append(f"a damaged page, near {before[:60].decode(errors='replace')!r}")
            continue
        try:
            pages.extend(_articles(ElementTree.fromstring(tag + inside + _PAGE_END), hidden))
        except Exception as error:  # of the XML parser, or of the parser of wikitext
            errors.append(f"a damaged page, near {inside[:60].decode(errors='replace').strip()!r}: {error}")
    return Parsed(content[:start], pages, content[end + len(_PAGE_END) :], errors)


def _articles(page: ElementTree.Element, hidden: tuple[str, ...]) -> Iterator[Page]:
    """Yield the article of a page in its last revision, if it is one and no redirect."""
    revisions = page.findall("revision")
    if page.findtext("ns", "0") != "0" or page.find("redirect") is not None or not revisions:
        return
    if (revisions[-1].findtext("model") or "wikitext") == "wikitext":
        text, links = plain_text(revisions[-1].findtext("text") or "", hidden)
        yield Page(page.findtext("id") or "", page.findtext("title") or "", text, links)


def _chunks(path: InputFile, hidden: tuple[str, ...], options: DocumentOptions) -> Iterator[Chunk]:
    """Yield the bytes of a file in chunks."""
    is_bzip2 = path.suffix.lower() == ".bz2"
    try:
        if is_bzip2:
            with open_bytes(path, options.progress, decompress=False) as file:
                yield from _stream_chunks(file, hidden)
        else:
            with open_bytes(path, options.progress) as file:
                yield from _page_chunks(file, 0, hidden)
    except READ_FAILURES as error:
        options.on_error(read_failure(error, path))


def _page_chunks(file: IO[bytes], offset: int, hidden: tuple[str, ...]) -> Iterator[Chunk]:
    """Yield decompressed bytes, cut after whole pages where possible."""
    buffer = b""
    while content := file.read(_CHUNK):
        buffer += content
        end = buffer.rfind(_PAGE_END) + len(_PAGE_END)
        if end >= len(_PAGE_END):
            yield Chunk(buffer[:end], offset, False, hidden)
            buffer, offset = buffer[end:], offset + end
    yield Chunk(buffer, offset, False, hidden)


def _stream_chunks(file: IO[bytes], hidden: tuple[str, ...]) -> Iterator[Chunk]:
    """Yield the bzip2 streams of a file; from a stream on that is too large, decompressed bytes."""
    buffer, offset = b"", 0
    while True:
        border = _STREAM.search(buffer, 1)
        if border:
            yield Chunk(buffer[: border.start()], offset, True, hidden)
            buffer, offset = buffer[border.start() :], offset + border.start()
            continue
        if len(buffer) > _LARGEST_STREAM:
            stream = io.BufferedReader(_Raw(Bzip2Stream(_Joined(buffer, file))))
            yield from _page_chunks(stream, offset, hidden)
            return
        content = file.read(_CHUNK)
        if not content:
            break
        buffer += content
    yield Chunk(buffer, offset, True, hidden)


class _Raw(io.RawIOBase):
    """A stream with `read1` as a raw file."""

    def __init__(self, stream: Bzip2Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        content = self._stream.read1(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _Joined(io.RawIOBase):
    """Some bytes, and then the rest of a file."""

    def __init__(self, start: bytes, file: IO[bytes]) -> None:
        self._start, self._file = start, file

    def read(self, size: int = -1) -> bytes:
        start, self._start = self._start, b""
        return start or self._file.read(size)
