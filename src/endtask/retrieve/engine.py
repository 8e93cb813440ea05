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
    """BM25 in Lucene's form, scored by the bm25s library; the whole index is held in memory."""

    def __init__(self, passages: WordStream, vocabulary: Vocabulary, *, k1: float, b: float) -> None:
        import bm25s

        self._scorer = bm25s.BM25(method="lucene", k1=k1, b=b)
        documents = [passages.document(position).tolist() for position in range(len(passages))]
        numbers = {str(number): number for number in range(len(vocabulary))}
        corpus = bm25s.tokenization.Tokenized(ids=documents, vocab=numbers)
        self._scorer.index(corpus, show_progress=False)

    def rank(self, queries: Iterator[WordIds], top_k: int) -> Iterator[Ranking]:
        """Score each query against every passage and keep the best."""
        for words in queries:
            scores = self._scorer.get_scores_from_ids(words.tolist())
            yield best(scores, top_k)


def best(scores: NDArray[np.float32], top_k: int) -> Ranking:
    """The `top_k` highest scores above zero; ties, also at the border, go to the earlier passage.

    >>> best(np.array([1, 3, 0, 3, 1], dtype=np.float32), 3).positions
    array([1, 3, 0])
    """
    positions = np.flatnonzero(scores > 0)
    if len(positions) > top_k:
        border = np.partition(scores[positions], len(positions) - top_k)[len(positions) - top_k]
        above = positions[scores[positions] > border]
        tied = positions[scores[positions] == border][: top_k - len(above)]
        positions = np.sort(np.concatenate([above, tied]))
    order = np.argsort(-scores[positions], kind="stable")
    return Ranking(positions[order].astype(np.int64), scores[positions[order]])
