"""Words of a text, independent of the tokenizer: their spans, their initials and the tokens that cover them."""

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

    The initial is `NO_LETTER` if the tokenizer splits the letter or does not have it.
    """

    @cache
    def initial(letter: str) -> int:
        if not letter.isalnum():
            return SIGN
        normalizer = tokenizer.backend_tokenizer.normalizer
        lower = (letter if normalizer is None else normalizer.normalize_str(letter)).lower()
        if not _is_plain_letter(lower) or not _has_letter(tokenizer, lower.upper()):
            return NO_LETTER
        return ord(lower)

    return lambda word: initial(word[0])


def _is_plain_letter(letter: str) -> bool:
    """Return whether a string is a single letter below code point 65,536, in upper case too."""
    return len(letter) == 1 and letter.isalpha() and len(letter.upper()) == 1 and ord(letter) < 1 << 16


def _has_letter(tokenizer: PreTrainedTokenizerFast, letter: str) -> bool:
    """Return whether a letter inside a word is at most one token, and known."""
    tokens = tokenizer(f"a{letter}", add_special_tokens=False)["input_ids"]
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    return len(tokens) <= len(alone) + 1 and tokenizer.unk_token_id not in tokens


IntArray = NDArray[np.int64]
_WHITE_SPACE = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype=np.uint32)
"""All code points for which `str.isspace` is True."""


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
        # Some tokenizers have tokens of white space only.
        self._tokens = np.flatnonzero(starts < ends)
        self._starts, self._ends = starts[self._tokens], ends[self._tokens]
        self.count = len(spans)

    def token_ranges(self, spans: Sequence[tuple[int, int]]) -> IntArray:
        """Return (first token, end, exact) of each character span: (spans, 3).

        `exact` is 1 if the tokens cover no other characters. A span without a token has an empty range.
        """
        characters = np.asarray(spans, dtype=np.int64).reshape(-1, 2)
        ranges = np.zeros((len(characters), 3), dtype=np.int64)
        if len(self._tokens) == 0 or len(characters) == 0:
            return ranges
        first = np.searchsorted(self._ends, characters[:, 0], "right")
        last = np.searchsorted(self._starts, characters[:, 1], "left") - 1
        has_token = first <= last
        first, last, characters = first[has_token], last[has_token], characters[has_token]
        exact = (self._starts[first] == characters[:, 0]) & (self._ends[last] == characters[:, 1])
        ranges[has_token] = np.stack([self._tokens[first], self._tokens[last] + 1, exact], axis=1)
        return ranges

    def first_tokens(self, characters: Sequence[int]) -> IntArray:
        """Return the first token that starts at each character index or later, or the number of tokens."""
        tokens = np.append(self._tokens, self.count)
        return tokens[np.searchsorted(self._starts, np.asarray(characters, dtype=np.int64), "left")]


def _visible_neighbors(text: str) -> tuple[IntArray, IntArray]:
    """Return for each index the start of the next character other than white space, and the end of the previous one."""
    is_space = np.isin(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4"), _WHITE_SPACE)
    size = len(is_space)
    indices = np.arange(size)
    following = np.minimum.accumulate(np.append(np.where(is_space, size, indices), size)[::-1])[::-1]
    before = np.maximum.accumulate(np.insert(np.where(is_space, 0, indices + 1), 0, 0))
    return following, before
