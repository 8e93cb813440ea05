"""Text files, and Markdown without its front matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, ClassVar

from endtask.corpus.formats.base import DocumentFormat, DocumentOptions, FileDocument, document_formats
from endtask.io.input_files import InputFile, ReadOptions
from endtask.io.lines import lines_of
from endtask.io.parsing import ParseError, parse_yaml

_BLOCK_CHARACTERS = 1 << 20
_MOST_FRONT_LINES = 500


@document_formats.register("text")
class Text(DocumentFormat):
    """A text file, whole, as it is."""

    suffixes: ClassVar[tuple[str, ...]] = (".txt", ".rst")

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the file as one document."""
        yield FileDocument("", text_blocks(line for _, line in lines_of(path, options)))


@document_formats.register("markdown")
class Markdown(DocumentFormat):
    """A Markdown file, whole, as it is; front matter between two lines `---` is left out, but for its title."""

    suffixes: ClassVar[tuple[str, ...]] = (".md",)

    def version(self, path: InputFile) -> str | None:
        """Return a tag for files with front matter."""
        start = islice(lines_of(path, ReadOptions(on_error=lambda error: None)), _MOST_FRONT_LINES)
        has_front_matter = _front_matter([line for _, line in start]) is not None
        return "without front matter" if has_front_matter else None

    def documents(self, path: InputFile, options: DocumentOptions) -> Iterator[FileDocument]:
        """Yield the file as one document."""
        lines = (line for _, line in lines_of(path, options))
        start = list(islice(lines, 1))
        if start and start[0].rstrip() == "---":
            start += islice(lines, _MOST_FRONT_LINES - 1)
        front = _front_matter(start)
        title = None if front is None else _title(start[1 : front - 1])
        yield FileDocument("", text_blocks(chain(start[front or 0 :], lines)), title=title)


def text_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in blocks, so that files of any size can be read; blocks end between paragraphs if possible."""
    block: list[str] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line) + 1
        if size > 2 * _BLOCK_CHARACTERS or (size > _BLOCK_CHARACTERS and not line.strip()):
            yield "\n".join(block)
            block, size = [], 0
    yield "\n".join(block)


def _front_matter(lines: list[str]) -> int | None:
    """Return the number of lines of the front matter with its marks; None without one.

    >>> _front_matter(["---", "title: A", "---", "Text."]), _front_matter(["---", "Text after a rule."])
    (3, None)
    """
    if not lines or lines[0].rstrip() != "---":
        return None
    return next((index + 1 for index, line in enumerate(lines) if index and line.rstrip() in ("---", "...")), None)


def _title(lines: list[str]) -> str | None:
    """Return the title in a front matter; None where it has none or is not YAML."""
    try:
        front: Any = parse_yaml("\n".join(lines))
    except ParseError:
        return None
    title = front.get("title") if isinstance(front, dict) else None
    return title if isinstance(title, str) and title.strip() else None
