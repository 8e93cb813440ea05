"""Words as retrieval sees them: runs of Unicode letters, digits or marks, lower-cased; no stop words."""

from __future__ import annotations

import re
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
        self._number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._number)

    def add(self, text: str) -> WordIds:
        """Word numbers of a text; new words get new numbers."""
        number = self._number
        return np.asarray([number.setdefault(word, len(number)) for word in words_of(text)], dtype=np.uint32)

    def known(self, text: str) -> WordIds:
        """Word numbers of a text without its unknown words."""
        number = self._number
        return np.asarray([number[word] for word in words_of(text) if word in number], dtype=np.uint32)


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
