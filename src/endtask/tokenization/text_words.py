"""Words of a text as people count them, whatever a tokenizer makes of them, and the letters they begin with."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

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
