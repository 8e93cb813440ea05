"""Which examples asked for which passage, gathered query by query in memory set by the number of passages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.retrieve.engine import Ranking
from endtask.retrieve.queries import Query

ASKED_BY_KEPT = 20
_NOBODY = np.iinfo(np.int64).max
_HIGHEST_SCORE = np.iinfo(np.int32).max
_SCORE_RANGE = _HIGHEST_SCORE + 1


class WhoAsked:
    """For each passage: how many examples asked for it, and the 20 queries that ranked it best.

    Better is the lower rank, then the higher score, then the earlier query.
    """

    def __init__(self, passages: int) -> None:
        self.asked_count = np.zeros(passages, dtype=np.int64)
        # (passages, 20), unordered: rank and score as one number, the lower the better; and the query they belong to
        self._keys = np.full((passages, ASKED_BY_KEPT), _NOBODY, dtype=np.int64)
        self._queries = np.full((passages, ASKED_BY_KEPT), -1, dtype=np.int32)

    def add(self, number: int, query: Query, ranking: Ranking) -> None:
        """Enter the ranking of query `number`; numbers must rise."""
        positions = ranking.positions
        self.asked_count[positions] += len(query.example_ids)
        keys = _keys(ranking.scores)
        held = self._keys[positions]  # (K, 20)
        worst = held.max(axis=1)
        enters = keys < worst
        positions, held, worst = positions[enters], held[enters], worst[enters]
        # Of equally bad queries the latest goes; every query stands after the -1 of an empty place.
        leaves = np.where(held == worst[:, None], self._queries[positions], -2).argmax(axis=1)
        self._keys[positions, leaves] = keys[enters]
        self._queries[positions, leaves] = number

    def best(self, position: int) -> tuple[int, float]:
        """The best rank of a passage that somebody asked for, and the score it had there."""
        rank, rest = divmod(int(self._keys[position].min()), _SCORE_RANGE)
        return rank, float(np.int32(_HIGHEST_SCORE - rest).view(np.float32))

    def asked(self, position: int, queries: list[Query]) -> tuple[str, ...]:
        """Example ids, best first; at most 20."""
        entries = sorted(zip(self._keys[position].tolist(), self._queries[position].tolist(), strict=True))
        ids = [example_id for _, number in entries if number >= 0 for example_id in queries[number].example_ids]
        return tuple(ids[:ASKED_BY_KEPT])


def _keys(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rank (from 1) and score of each place of a ranking as one number; positive floats sort as their bits do."""
    ranks = np.arange(1, len(scores) + 1, dtype=np.int64)
    return ranks * _SCORE_RANGE + (_HIGHEST_SCORE - scores.view(np.int32).astype(np.int64))
