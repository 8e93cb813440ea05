"""Which examples asked for which passage, gathered query by query in memory set by the number of passages."""

from __future__ import annotations

import numpy as np

from endtask.retrieve.engine import Ranking
from endtask.retrieve.queries import Query

ASKED_BY_KEPT = 20
_NOBODY = np.iinfo(np.int32).max


class WhoAsked:
    """For each passage: best rank and its score, how many examples asked, and the 20 queries that ranked it best."""

    def __init__(self, passages: int) -> None:
        self.rank = np.full(passages, _NOBODY, dtype=np.int32)
        self.score = np.zeros(passages, dtype=np.float32)
        self.asked_count = np.zeros(passages, dtype=np.int64)
        # (passages, 20): the ranks and scores given and the queries that gave them, unordered
        self._ranks = np.full((passages, ASKED_BY_KEPT), _NOBODY, dtype=np.int32)
        self._queries = np.full((passages, ASKED_BY_KEPT), -1, dtype=np.int32)
        self._scores = np.zeros((passages, ASKED_BY_KEPT), dtype=np.float32)

    def add(self, number: int, query: Query, ranking: Ranking) -> None:
        """Enter the ranking of query `number`."""
        positions = ranking.positions
        ranks = np.arange(1, len(positions) + 1, dtype=np.int32)
        better = (ranks < self.rank[positions]) | (
            (ranks == self.rank[positions]) & (ranking.scores > self.score[positions])
        )
        self.rank[positions[better]] = ranks[better]
        self.score[positions[better]] = ranking.scores[better]
        self.asked_count[positions] += len(query.example_ids)
        worst = self._ranks[positions].argmax(axis=1)  # an empty place holds the largest rank
        enters = ranks < self._ranks[positions, worst]
        self._ranks[positions[enters], worst[enters]] = ranks[enters]
        self._queries[positions[enters], worst[enters]] = number
        self._scores[positions[enters], worst[enters]] = ranking.scores[enters]

    def asked(self, position: int, queries: list[Query]) -> tuple[str, ...]:
        """Example ids, best rank first, then higher score; at most 20."""
        columns = (self._ranks[position], -self._scores[position], self._queries[position])
        entries = sorted(zip(*(column.tolist() for column in columns), strict=True))
        ids = [example_id for _, _, number in entries if number >= 0 for example_id in queries[number].example_ids]
        return tuple(ids[:ASKED_BY_KEPT])
