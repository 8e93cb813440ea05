"""Words of a text as people count them, whatever a tokenizer makes of them, and the letters they begin with."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NO_LETTER = 0
"""The initial of a word that begins with a digit, or with a letter that no acronym can show."""
SIGN = 1
"""The initial of what is no word: a comma, a bracket."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_+")


def word_places(text: str) -> list[tuple[int, int]]:
    """The characters of each word and of each sign between words, which count as words of their own.

    >>> [text[start:end] for text in ["John's well-known."] for start, end in word_places(text)]
    ["John's", 'well', '-', 'known', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]


def initial_finder(tokenizer: PreTrainedTokenizerFast) -> Callable[[str], int]:
    """A function from a word to its initial as this tokenizer shows it, in lower case, as a code point.

    Letters that the tokenizer cannot write as one token, or only as an unknown one, are `NO_LETTER`.
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
    """Whether it is one letter, in capitals too, of the first 65,536 characters."""
    return len(letter) == 1 and letter.isalpha() and len(letter.upper()) == 1 and ord(letter) < 1 << 16


def _can_write(tokenizer: PreTrainedTokenizerFast, letter: str) -> bool:
    tokens = tokenizer(f"a{letter}", add_special_tokens=False)["input_ids"]
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    return len(tokens) <= len(alone) + 1 and tokenizer.unk_token_id not in tokens


Whole = NDArray[np.int64]
# What str.isspace is true of.
_WHITE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)


class TokenPlaces:
    """The places of one text's tokens, without white space at their ends.

    >>> places = TokenPlaces("red apples", [(0, 3), (3, 9), (9, 10)])
    >>> places.token_ranges([(4, 10), (4, 8)]).tolist()
    [[1, 3, 1], [1, 2, 0]]
    """

    def __init__(self, text: str, offsets: Sequence[tuple[int, int]]) -> None:
        places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
        following, before = _visible_neighbors(text)
        starts, ends = following[places[:, 0]], before[places[:, 1]]
        # Some tokenizers have tokens of white space alone.
        self._tokens = np.flatnonzero(starts < ends)
        self._starts, self._ends = starts[self._tokens], ends[self._tokens]
        self.count = len(places)

    def token_ranges(self, spans: Sequence[tuple[int, int]]) -> Whole:
        """For each span of characters: its first token, the one behind its last, and whether these are just the span.

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

    def first_tokens(self, places: Sequence[int]) -> Whole:
        """For each place in the text the first token that starts there or later; the number of tokens if none does."""
        tokens = np.append(self._tokens, self.count)
        return tokens[np.searchsorted(self._starts, np.asarray(places, dtype=np.int64), "left")]


def _visible_neighbors(text: str) -> tuple[Whole, Whole]:
    """For each place: where the next character that is not white space stands, and where the one before it ends."""
    white = np.isin(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"), _WHITE)
    size = len(white)
    places = np.arange(size)
    following = np.minimum.accumulate(np.append(np.where(white, size, places), size)[::-1])[::-1]
    before = np.maximum.accumulate(np.insert(np.where(white, 0, places + 1), 0, 0))
    return following, before
