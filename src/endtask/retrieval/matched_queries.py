"""Which examples asked for which passage: the rankings turned round, a stretch of the corpus at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.bm25.rankings import Rankings
from endtask.retrieval.compiled import compiled
from endtask.retrieval.queries import Query

MATCHED_QUERIES_STORED = 20
_MOST_ENTRIES = 1 << 22
"""Places of rankings held in memory at a time; each takes 16 bytes."""


@dataclass(frozen=True)
class MatchedPassages:
    """The passages of a stretch that somebody asked for, in corpus order; one entry each unless said.

    `rank` is the best over all queries, `score` what the passage had there (the higher, then the earlier query, where
    several rank it alike). `query_matches` are numbers of examples, best first, at most 20 for each passage, end to end.
    `class_ranks` is the best rank among each class's examples, 0 where none asked: (passages, classes).
    """

    positions: NDArray[np.int64]
    rank: NDArray[np.int64]
    score: NDArray[np.float64]
    matched_count: NDArray[np.int64]
    query_counts: NDArray[np.int64]
    query_matches: NDArray[np.int32]
    class_ranks: NDArray[np.int32]

    def part(self, start: int, stop: int) -> MatchedPassages:
        """Those at positions from `start` to before `stop`."""
        first, last = np.searchsorted(self.positions, [start, stop])
        return self.rows(int(first), int(last), np.cumsum(self.query_counts))

    def rows(self, first: int, last: int, query_ends: NDArray[np.int64]) -> MatchedPassages:
        """Those from number `first` to before `last`; `query_ends` is where the askers of each passage end."""
        start, stop = (int(query_ends[place - 1]) if place else 0 for place in (first, last))
        rows = slice(first, last)
        return MatchedPassages(
            self.positions[rows],
            self.rank[rows],
            self.score[rows],
            self.matched_count[rows],
            self.query_counts[rows],
            self.query_matches[start:stop],
            self.class_ranks[rows],
        )


class QueryMatches:
    """Turns rankings round; examples are numbered in the order in which the queries name them."""

    def __init__(self, rankings: Rankings, queries: Sequence[Query], labels: Sequence[str]) -> None:
        self._rankings = rankings
        self._examples = _joined([range(len(query.example_ids)) for query in queries], running=True)
        number = {label: place for place, label in enumerate(labels)}
        classes = [[number[label] for label in query.labels if label in number] for query in queries]
        self._classes = _joined(classes)
        self._class_count = len(labels)

    def by_range(self, borders: Sequence[int]) -> Iterator[MatchedPassages]:
        """What was asked for between each two neighbors of `borders`, in corpus order."""
        edges = np.asarray(borders, dtype=np.int64)
        entries = np.zeros(len(edges) + 1, dtype=np.int64)
        for block in self._rankings.blocks():
            # Entry n: what stands from edge n - 1 to before edge n.
            entries += np.bincount(np.searchsorted(edges, block.positions, side="right"), minlength=len(entries))
        for first, last in _groups(entries[1:-1]):
            together = self._turned(int(edges[first]), int(edges[last]))
            yield from (together.part(int(edges[n]), int(edges[n + 1])) for n in range(first, last))

    def _turned(self, start: int, stop: int) -> MatchedPassages:
        offsets = np.zeros(stop - start + 1, dtype=np.int64)
        for block in self._rankings.blocks():
            _count(block.positions, start, stop, offsets)
        np.cumsum(offsets, out=offsets)
        cursors = offsets[:-1].copy()
        queries, ranks = np.zeros(offsets[-1], dtype=np.int32), np.zeros(offsets[-1], dtype=np.int32)
        scores = np.zeros(offsets[-1], dtype=np.float64)
        for block in self._rankings.blocks():
            entries = (block.positions, block.scores, block.sizes, block.first)
            _gather(*entries, start, stop, cursors, queries, ranks, scores)
        return self._best_query_matches(start, offsets, queries, ranks, scores)

    def _best_query_matches(
        self,
        start: int,
        offsets: NDArray[np.int64],
        queries: NDArray[np.int32],
        ranks: NDArray[np.int32],
        scores: NDArray[np.float64],
    ) -> MatchedPassages:
        asked = np.flatnonzero(np.diff(offsets))
        count = len(asked)
        rank, matched_count = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        score = np.zeros(count, dtype=np.float64)
        query_counts = np.zeros(count, dtype=np.int64)
        query_matches = np.zeros((count, MATCHED_QUERIES_STORED), dtype=np.int32)
        class_ranks = np.zeros((count, self._class_count), dtype=np.int32)
        find_query_matches(
            asked, offsets, queries, ranks, scores, *self._examples, *self._classes,
            rank, score, matched_count, query_counts, query_matches, class_ranks,
        )  # fmt: skip
        held = np.arange(MATCHED_QUERIES_STORED) < query_counts[:, None]  # (passages, 20)
        return MatchedPassages(
            asked + start, rank, score, matched_count, query_counts, query_matches[held], class_ranks
        )


def _joined(parts: Sequence[Sequence[int]], *, running: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists end to end: offsets and values, which with `running` are just the numbers from 0 on."""
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    values = range(int(offsets[-1])) if running else [value for part in parts for value in part]
    return offsets, np.asarray(values, dtype=np.int64)


def _groups(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Neighbouring stretches as (first, after the last), together no more than memory should hold."""
    first, held = 0, 0
    for place, size in enumerate(sizes.tolist()):
        if place > first and held + size > _MOST_ENTRIES:
            yield first, place
            first, held = place, 0
        held += size
    if len(sizes):
        yield first, len(sizes)


@compiled("void(int64[::1], int64, int64, int64[::1])")
def _count(positions, start, stop, counts):  # type: ignore[no-untyped-def]
    """Count the entries of each position, one place up, so that sums make offsets of them."""
    for place in range(positions.size):
        if start <= positions[place] < stop:
            counts[positions[place] - start + 1] += 1


@compiled(
    "void(int64[::1], float64[::1], int64[::1], int64, int64, int64, int64[::1], int32[::1], int32[::1], float64[::1])"
)
def _gather(positions, scores, sizes, query, start, stop, cursors, queries, ranks, found):  # type: ignore[no-untyped-def]
    """Put the entries of each position together, in the order of the queries."""
    place = 0
    for size in sizes:
        for rank in range(size):
            position = positions[place]
            if start <= position < stop:
                at = cursors[position - start]
                cursors[position - start] = at + 1
                queries[at], ranks[at], found[at] = query, rank + 1, scores[place]
            place += 1
        query += 1


@compiled(
    "void(int64[::1], int64[::1], int32[::1], int32[::1], float64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    "int64[::1], float64[::1], int64[::1], int64[::1], int32[:, ::1], int32[:, ::1])"
)
def find_query_matches(  # type: ignore[no-untyped-def]
    asked, offsets, queries, ranks, scores, example_offsets, examples, class_offsets, classes,
    best_rank, best_score, matched_count, query_counts, query_matches, class_ranks,
):  # fmt: skip
    """For each passage: who asked, best first (lower rank, higher score, earlier query), and how many."""
    best = np.zeros(MATCHED_QUERIES_STORED, dtype=np.int64)
    for row in range(asked.size):
        held = 0
        for entry in range(offsets[asked[row]], offsets[asked[row] + 1]):
            query = queries[entry]
            matched_count[row] += example_offsets[query + 1] - example_offsets[query]
            for at in range(class_offsets[query], class_offsets[query + 1]):
                before = class_ranks[row, classes[at]]
                if before == 0 or ranks[entry] < before:
                    class_ranks[row, classes[at]] = ranks[entry]
            place = held
            while place > 0:
                other = best[place - 1]
                if ranks[other] < ranks[entry] or (ranks[other] == ranks[entry] and scores[other] >= scores[entry]):
                    break
                if place < MATCHED_QUERIES_STORED:
                    best[place] = other
                place -= 1
            if place < MATCHED_QUERIES_STORED:
                best[place] = entry
                held = min(held + 1, MATCHED_QUERIES_STORED)
        best_rank[row], best_score[row] = ranks[best[0]], scores[best[0]]
        count = 0
        for place in range(held):
            query = queries[best[place]]
            for at in range(example_offsets[query], example_offsets[query + 1]):
                if count < MATCHED_QUERIES_STORED:
                    query_matches[row, count] = examples[at]
                    count += 1
        query_counts[row] = count
