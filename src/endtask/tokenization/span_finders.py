"""Words of a text, independent of the tokenizer: their spans, their initials and the tokens that cover them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.config import AlignedSettings
from endtask.corpus.passages import sentence_starts
from endtask.corpus.reading import Links
from endtask.errors import InputError
from endtask.io.tables import read_lines
from endtask.records import Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NO_LETTER = 0
"""The initial of a word that begins with a digit, or with a letter that an acronym cannot contain."""
SIGN = 1
"""The initial of punctuation, such as a comma or bracket."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the character spans of words and punctuation marks.

    >>> [text[start:end] for text in ["John's well-known."] for start, end in word_spans(text)]
    ["John's", 'well', '-', 'known', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]


def initial_finder(tokenizer: PreTrainedTokenizerFast) -> Callable[[str], int]:
    """Return a function from a word to the code point of its initial, normalised by the tokenizer, in lower case.

    Letters that are several tokens, or unknown to the tokenizer, are `NO_LETTER`.
    """

    @cache
    def initial(letter: str) -> int:
        if not letter.isalnum():
            return SIGN
        normalizer = tokenizer.backend_tokenizer.normalizer
        shown = (letter if normalizer is None else normalizer.normalize_str(letter)).lower()
        if not _is_plain_letter(shown) or not _can_write(tokenizer, shown.upper()):
            return NO_LETTER
        return ord(shown)

    return lambda word: initial(word[0])


def _is_plain_letter(letter: str) -> bool:
    """Return whether a string is one letter below code point 65,536, in upper case too."""
    return len(letter) == 1 and letter.isalpha() and len(letter.upper()) == 1 and ord(letter) < 1 << 16


def _can_write(tokenizer: PreTrainedTokenizerFast, letter: str) -> bool:
    tokens = tokenizer(f"a{letter}", add_special_tokens=False)["input_ids"]
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    return len(tokens) <= len(alone) + 1 and tokenizer.unk_token_id not in tokens


IntArray = NDArray[np.int64]
# The code points for which str.isspace is true.
_WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)


class TokenSpans:
    """The character spans of a text's tokens, without white space at their ends.

    >>> tokens = TokenSpans("red apples", [(0, 3), (3, 9), (9, 10)])
    >>> tokens.token_ranges([(4, 10), (4, 8)]).tolist()
    [[1, 3, 1], [1, 2, 0]]
    """

    def __init__(self, text: str, offsets: Sequence[tuple[int, int]]) -> None:
        spans = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        following, before = _visible_neighbors(text)
        starts, ends = following[spans[:, 0]], before[spans[:, 1]]
        # Some tokenizers have tokens of white space alone.
        self._tokens = np.flatnonzero(starts < ends)
        self._starts, self._ends = starts[self._tokens], ends[self._tokens]
        self.count = len(spans)

    def token_ranges(self, spans: Sequence[tuple[int, int]]) -> IntArray:
        """Return (first token, end, exact) of each character span: whether the tokens cover just the span.

        A span without any token has an empty range. (spans, 3)
        """
        given = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
        ranges = np.zeros((len(given), 3), dtype=np.int64)
        if len(self._tokens) == 0 or len(given) == 0:
            return ranges
        first = np.searchsorted(self._ends, given[:, 0], "right")
        last = np.searchsorted(self._starts, given[:, 1], "left") - 1
        found = first <= last
        first, last = first[found], last[found]
        exact = (self._starts[first] == given[found, 0]) & (self._ends[last] == given[found, 1])
        ranges[found] = np.stack([self._tokens[first], self._tokens[last] + 1, exact], axis=1)
        return ranges

    def first_tokens(self, characters: Sequence[int]) -> IntArray:
        """Return for each character index the first token that starts there or later; the token count if none does."""
        tokens = np.append(self._tokens, self.count)
        return tokens[np.searchsorted(self._starts, np.asarray(characters, dtype=np.int64), "left")]


def _visible_neighbors(text: str) -> tuple[IntArray, IntArray]:
    """Return for each index where the next character that is not white space starts, and where the last one ends."""
    white = np.isin(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"), _WHITE)
    size = len(white)
    indices = np.arange(size)
    following = np.minimum.accumulate(np.append(np.where(white, size, indices), size)[::-1])[::-1]
    before = np.maximum.accumulate(np.insert(np.where(white, 0, indices + 1), 0, 0))
    return following, before


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
