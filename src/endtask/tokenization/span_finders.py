"""Find spans of a passage that resemble those of an end task: links, title case, quotes, words of a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from endtask.config import AlignedSettings
from endtask.corpus.passages import sentence_starts
from endtask.corpus.reading import Links
from endtask.errors import InputError
from endtask.io.tables import read_lines
from endtask.records import Document
from endtask.tokenization.word_spans import word_spans

Finder = Callable[[Document], tuple[str, Links]]
"""Returns the text of a passage, which may differ from the original, and its spans, in order and without overlap."""

_SMALL = r"(?:of|de|la|von|van|der)"
_CAPITALS = re.compile(rf"\b[A-Z][\w'’-]*(?:[ ](?:{_SMALL}[ ])?[A-Z][\w'’-]*)*")
_LONGEST_QUOTE = 80
_QUOTES = re.compile(rf"\"([^\"\n“”]{{1,{_LONGEST_QUOTE}}})\"|“([^\"\n“”]{{1,{_LONGEST_QUOTE}}})”")


def span_finder(settings: AlignedSettings) -> Finder:
    """Return the span finder of the settings."""
    if settings.spans_from == "word_list":
        assert settings.word_list is not None
        return ListedWords(Path(settings.word_list))
    return {"markup": from_markup, "title_case": from_title_case, "quotes": from_quotes}[settings.spans_from]


def from_markup(document: Document) -> tuple[str, Links]:
    """Return the passage's links."""
    return document.text, document.links


def from_title_case(document: Document) -> tuple[str, Links]:
    """Return sequences of words in title case, except a single word at the start of a sentence.

    >>> text, spans = from_title_case(Document("1", "They saw Super Mario. Then the King of Spain came.", "s"))
    >>> [text[start:end] for start, end in spans]
    ['Super Mario', 'King of Spain']
    """
    starts = set(sentence_starts(document.text))
    matches = (match for match in _CAPITALS.finditer(document.text) if " " in match[0] or match.start() not in starts)
    return document.text, tuple(match.span() for match in matches)


def from_quotes(document: Document) -> tuple[str, Links]:
    """Return quoted words, and the text without the quotation marks, which would reveal the spans.

    >>> from_quotes(Document("1", 'The hit "Northern Lights" won.', "s"))
    ('The hit Northern Lights won.', ((8, 23),))
    """
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    done = length = 0
    for match in _QUOTES.finditer(document.text):
        inside = match[1] or match[2]
        before = document.text[done : match.start()]
        start = length + len(before)
        parts += [before, inside]
        done, length = match.end(), start + len(inside)
        stripped = inside.strip()
        if stripped:
            first = start + inside.index(stripped)
            spans.append((first, first + len(stripped)))
    return "".join([*parts, document.text[done:]]), tuple(spans)


class ListedWords:
    """Finds the words and phrases of a list, one per line, in any case; the longest of several matches.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "list.txt").write_text("new york\\nyork\\n")
    ...     ListedWords(Path(folder, "list.txt"))(Document("1", "In New York, not York.", "s"))[1]
    ((3, 11), (17, 21))
    """

    def __init__(self, path: Path) -> None:
        self._phrases = {phrase for _, line in read_lines(path) if (phrase := _words_of(line))}
        if not self._phrases:
            raise InputError("holds no words", path=path, key="aligned.word_list")
        self._longest = max(map(len, self._phrases))

    def __call__(self, document: Document) -> tuple[str, Links]:
        return document.text, tuple(self._matches(document.text))

    def _matches(self, text: str) -> Iterator[tuple[int, int]]:
        spans = word_spans(text)
        words = [text[start:end].casefold() for start, end in spans]
        index = 0
        while index < len(words):
            sizes = (
                size
                for size in range(min(self._longest, len(words) - index), 0, -1)
                if tuple(words[index : index + size]) in self._phrases
            )
            size = next(sizes, 0)
            if size:
                yield spans[index][0], spans[index + size - 1][1]
            index += size or 1


def _words_of(line: str) -> tuple[str, ...]:
    return tuple(line[start:end].casefold() for start, end in word_spans(line))
