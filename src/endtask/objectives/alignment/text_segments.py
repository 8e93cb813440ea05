"""Packed texts as they are, or cut into pieces of a few words to many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from endtask.tokenization.aligned_texts import AlignedTexts

Whole = NDArray[np.int64]
SHORTEST, LONGEST = 4, 64
"""Words of a piece; the rest of a text may be shorter."""


@dataclass(frozen=True)
class Pieces:
    """P runs of words, each of one text, with the signs between and behind them."""

    texts: AlignedTexts
    words: Whole  # (P, 2): the first and the one behind the last, of `texts.plain_words`
    text: Whole  # (P,)
    tokens: Whole  # (P, 2): the first and the one behind the last of its text

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def lengths(self) -> Whole:
        """How many tokens each has."""
        sizes: Whole = self.tokens[:, 1] - self.tokens[:, 0]
        return sizes

    def initials(self, piece: int) -> str:
        """The initials of its words."""
        return self.texts.initials[self.words[piece, 0] : self.words[piece, 1]]

    def token_ids(self, piece: int) -> Whole:
        """Its tokens, without special ones."""
        return self.texts[int(self.text[piece])][slice(*self.tokens[piece])]

    def of(self, chosen: NDArray[np.bool_]) -> Pieces:
        """Some of them."""
        return Pieces(self.texts, self.words[chosen], self.text[chosen], self.tokens[chosen])


def whole_texts(texts: AlignedTexts) -> Pieces:
    """Every text with words as one piece."""
    return _cut(texts, np.empty(0, dtype=np.int64))


def cut_texts(texts: AlignedTexts, random: np.random.Generator) -> Pieces:
    """Every text cut into pieces, twice as long ones half as often (uniform in the logarithm)."""
    count = len(texts.plain_words[0])
    sizes = np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count // SHORTEST + 1)).astype(np.int64)
    ends = np.cumsum(sizes)
    return _cut(texts, ends[ends < count])


def _cut(texts: AlignedTexts, ends: Whole) -> Pieces:
    """Cut behind words, numbered over all texts, and where texts end."""
    words, offsets = texts.plain_words
    cuts = np.unique(np.concatenate([offsets, ends]))
    first, last = cuts[:-1], cuts[1:]
    text = np.searchsorted(offsets, first, "right") - 1  # of texts without words none begins a piece
    next_word = words[np.minimum(last, len(words) - 1), 0]
    start = np.where(first == offsets[text], 1, words[first, 0])
    end = np.where(last == offsets[text + 1], texts.lengths[text] - 1, next_word)
    return Pieces(texts, np.stack([first, last], axis=1), text, np.stack([start, end], axis=1))
