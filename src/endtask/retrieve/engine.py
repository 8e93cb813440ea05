"""What a retrieval engine is, and the first one: bm25s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from endtask.retrieve.words import Vocabulary, WordIds, WordStream


@dataclass(frozen=True)
class Ranking:
    """A query's passages, best first; equal scores stand in corpus order."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float32]

    def moved(self, places: NDArray[np.int64]) -> Ranking:
        """The same ranking when passage i stands at `places[i]`."""
        return Ranking(places[self.positions], self.scores)


class Engine(Protocol):
    """Ranks passages for queries."""

    def rank(self, queries: Iterator[WordIds], top_k: int) -> Iterator[Ranking]:
        """One ranking per query, in order; passages that share no word with the query are left out."""
        ...


class Bm25sEngine:
    """BM25 in Lucene's form, indexed and scored by the bm25s library; the whole index is held in memory."""

    def __init__(self, passages: WordStream, vocabulary: Vocabulary, *, k1: float, b: float) -> None:
        import bm25s

        self._passages = len(passages)
        self._has_words = len(passages.ids) > 0
        self._scorer = bm25s.BM25(method="lucene", k1=k1, b=b)
        if self._has_words:  # bm25s divides by the mean length
            numbers = list(range(len(vocabulary)))
            self._scorer.scores = self._scorer.build_index_from_ids(numbers, _Lists(passages), show_progress=False)

    def rank(self, queries: Iterator[WordIds], top_k: int) -> Iterator[Ranking]:
        """Score each query against every passage and keep the best."""
        for words in queries:
            yield best(self.scores(words), top_k)

    def scores(self, words: WordIds) -> NDArray[np.float32]:
        """The score of every passage for one query; a word asked twice counts twice."""
        if not self._has_words or len(words) == 0:
            return np.zeros(self._passages, dtype=np.float32)
        scores: NDArray[np.float32] = self._scorer.get_scores_from_ids(words.tolist())
        return scores


class _Lists:
    """Each passage's words as a Python list, made when asked for: all of them at once would fill the memory."""

    def __init__(self, passages: WordStream) -> None:
        self._passages = passages

    def __len__(self) -> int:
        return len(self._passages)

    def __iter__(self) -> Iterator[list[int]]:
        return (self._passages.document(position).tolist() for position in range(len(self)))


def best(scores: NDArray[np.float32], top_k: int) -> Ranking:
    """The `top_k` highest scores above zero; ties, also at the border, go to the earlier passage.

    >>> best(np.array([1, 3, 0, 3, 1], dtype=np.float32), 3).positions
    array([1, 3, 0])
    """
    place = len(scores) - top_k
    border = np.partition(scores, place)[place] if place > 0 else np.float32(0)
    if border > 0:
        above = np.flatnonzero(scores > border)
        tied = np.flatnonzero(scores == border)[: top_k - len(above)]
        positions = np.sort(np.concatenate([above, tied]))
    else:
        positions = np.flatnonzero(scores > 0)
    order = np.argsort(-scores[positions], kind="stable")
    return Ranking(positions[order].astype(np.int64), scores[positions[order]])
