"""Words as retrieval sees them: runs of Unicode letters or digits, lower-cased; no stop words are left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+")

WordIds = NDArray[np.uint32]


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

    >>> words_of("The << X-ray >> of [[ Zürich ]]")
    ['the', 'x', 'ray', 'of', 'zürich']
    """
    return _WORD.findall(text.lower())


class Vocabulary:
    """Numbers words in the order they are first met."""

    def __init__(self) -> None:
        # A word that is looked up for the first time gets the next number.
        self._number: defaultdict[str, int] = defaultdict()
        self._number.default_factory = self._number.__len__

    def __len__(self) -> int:
        return len(self._number)

    def add(self, text: str) -> WordIds:
        """Word numbers of a text; new words get new numbers."""
        return np.asarray(list(map(self._number.__getitem__, words_of(text))), dtype=np.uint32)

    def known(self, text: str) -> WordIds:
        """Word numbers of a text without its unknown words."""
        numbers = self.numbers(text)
        return numbers[numbers >= 0].astype(np.uint32)

    def numbers(self, text: str) -> NDArray[np.int64]:
        """Word numbers of a text with -1 for each unknown word."""
        return np.asarray([self._number.get(word, -1) for word in words_of(text)], dtype=np.int64)


@dataclass(frozen=True)
class WordStream:
    """The words of many documents end to end; document i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: WordIds
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, position: int) -> WordIds:
        """The words of one document."""
        return self.ids[self.offsets[position] : self.offsets[position + 1]]

    def take(self, kept: NDArray[np.bool_]) -> WordStream:
        """The stream of the kept documents only."""
        lengths = np.diff(self.offsets)
        return join_words(lengths[kept], self.ids[np.repeat(kept, lengths)])


def join_words(lengths: NDArray[np.int64], ids: WordIds) -> WordStream:
    """A stream from document lengths and all words."""
    return WordStream(ids, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)]))


def number_words(texts: Iterable[str], vocabulary: Vocabulary) -> WordStream:
    """Number the words of many texts."""
    documents = [vocabulary.add(text) for text in texts]
    lengths = np.asarray([len(document) for document in documents], dtype=np.int64)
    return join_words(lengths, np.concatenate(documents) if documents else np.zeros(0, dtype=np.uint32))
