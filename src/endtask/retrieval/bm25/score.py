"""The kernel of pass 2 scores passages against the queries that share a word with them and stores each query's best.

BM25 in Lucene's form: score(q, d) = sum over the words t of q of idf(t) * tf / (tf + k1 * (1 - b + b * |d| / mean)).

Most passages enter the top K of few queries, so the kernel first computes a cheap upper bound in single precision: the
exact contribution of the rarer words plus the maximum of the common words. It sums the score itself, in double
precision and in the order of the query's words, only where the bound (with slack for its rounding) reaches the query's
K-th best score so far. So the bound cannot change a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.bm25.rankings import RankedBlock
from endtask.retrieval.bm25.scan import FULL_COUNT
from endtask.retrieval.bm25.shards import Chunk
from endtask.retrieval.compiled import compiled, njit

LANES = 32
"""The kernel tests groups of so many queries; a block of queries is padded to full groups."""

_COMMON = float(np.log(2))
"""Words with a lower idf are common: they occur in more than half of the passages."""
_NO_LIMIT, _NEXT_TO_NOTHING = 3e38, -1e-37
_MAX_QUERIES = 4096
"""The most queries of a block, which one thread scores; their sums fit into its first-level cache."""
_MAX_BYTES = 1 << 26
"""The most memory for the best passages of a block of queries."""


@dataclass(frozen=True)
class Bm25:
    """The constants of the formula."""

    idf: NDArray[np.float64]
    mean_length: float
    k1: float
    b: float


class QueryBlock:
    """A block of queries as term numbers, with the best passages found so far.

    Passages that score less than a query's entry in `limits` are left out: an estimate of its K-th best score, or 0.
    """

    def __init__(
        self,
        queries: Sequence[NDArray[np.int64]],
        bm25: Bm25,
        top_k: int,
        limits: NDArray[np.float64] | None = None,
    ) -> None:
        self.count = len(queries)
        self._top_k = top_k
        self._offsets, self._terms, self._weights = _terms_of(queries)
        owners = np.repeat(np.arange(self.count), np.diff(self._offsets))
        self._is_common = bm25.idf < _COMMON
        self._postings = _postings_of(self._terms, self._weights, owners, self._is_common)
        most = self._weights * bm25.idf[self._terms] * self._is_common[self._terms]
        self._bounds = self._padded(np.bincount(owners, most, minlength=self.count), 0.0)
        # Each of n additions in single precision has an error of at most 2**-24 of the largest partial sum.
        additions = np.bincount(owners, self._weights, minlength=self.count) + 8.0
        self._slack = self._padded(additions * 2.0**-22, 0.0)
        self._first_limits = np.zeros(self.count) if limits is None else limits
        self._start = self._padded(self._first_start(), -1.0)
        capacity = _capacity(top_k)
        self._best_scores = np.zeros((self.count, capacity), dtype=np.float64)
        self._best_positions = np.zeros((self.count, capacity), dtype=np.int64)
        self._sizes = np.zeros(self.count, dtype=np.int64)
        self._limits = self._first_limits.copy()
        self._sums = np.zeros_like(self._start)
        self._term_weights = np.zeros(len(bm25.idf), dtype=np.float64)
        self._touched = np.zeros(len(bm25.idf), dtype=np.int32)

    @staticmethod
    def bytes_per_query(top_k: int) -> int:
        """Return the approximate memory per query."""
        return 16 * _capacity(top_k)

    def score(self, chunk: Chunk, states: NDArray[np.uint8], position: int, bm25: Bm25) -> None:
        """Score a chunk of passages; the first of them that is in the corpus has the index `position`."""
        score_passages(
            chunk.pairs, np.ascontiguousarray(chunk.passages["pairs"]), np.ascontiguousarray(chunk.passages["words"]),
            states, position, bm25.k1, bm25.b, bm25.mean_length, bm25.idf,
            self._is_common, self._offsets, self._terms, self._weights, *self._postings,
            self._bounds, self._slack, self._start,
            self._best_scores, self._best_positions, self._sizes, self._limits, self._top_k,
            self._sums, self._sums.view(np.int32), self._term_weights, self._touched,
        )  # fmt: skip

    def short_of_passages(self) -> NDArray[np.int64]:
        """Return the queries that have fewer than K passages because of their first limit."""
        return np.flatnonzero((self._first_limits > 0) & (self._sizes < self._top_k))

    def replace(self, queries: NDArray[np.int64], other: QueryBlock) -> None:
        """Take the passages of some queries from a block that consists of them."""
        self._best_scores[queries], self._best_positions[queries] = other._best_scores, other._best_positions
        self._sizes[queries] = other._sizes

    def kth_scores(self) -> NDArray[np.float64]:
        """Return the K-th best score of each query, 0 where it has fewer passages; call it after the last chunk."""
        sort_best(self._best_scores, self._best_positions, self._sizes, self._top_k)
        return np.where(self._sizes == self._top_k, self._best_scores[:, self._top_k - 1], 0.0)

    def ranked(self, first: int) -> RankedBlock:
        """Return the rankings after the last chunk; `first` is the index of the block's first query."""
        sort_best(self._best_scores, self._best_positions, self._sizes, self._top_k)
        is_used = np.arange(self._best_scores.shape[1]) < self._sizes[:, None]  # (queries, capacity)
        return RankedBlock(first, self._sizes, self._best_positions[is_used], self._best_scores[is_used])

    def _first_start(self) -> NDArray[np.float64]:
        """Return the sums that queries start from: the score that rarer words must add makes a sum positive.

        A query without a limit scores all passages; without common words, only those that share a word with it.
        """
        bounds, slack, limits = self._bounds[: self.count], self._slack[: self.count], self._first_limits
        all_passages = np.where(bounds > 0, _NO_LIMIT, _NEXT_TO_NOTHING)
        return np.where(limits > 0, bounds - limits + slack * (limits + bounds), all_passages)

    def _padded(self, values: NDArray[Any], filler: float) -> NDArray[np.float32]:
        padded = np.full(-(-max(1, self.count) // LANES) * LANES, filler, dtype=np.float32)
        padded[: self.count] = values
        return padded


def _capacity(top_k: int) -> int:
    """Return the size of a query's buffer of passages; when it is full, all but the best K are dropped."""
    return top_k + max(top_k // 2, 64)


def _postings_of(
    terms: NDArray[np.int32], weights: NDArray[np.float64], owners: NDArray[np.int64], is_common: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Return the queries that contain each term that is not common: offsets by term, and queries with repetitions."""
    times = np.where(is_common[terms], 0, weights).astype(np.int64)
    order = np.argsort(terms, kind="stable")
    offsets = np.zeros(len(is_common) + 1, dtype=np.int64)
    np.cumsum(np.bincount(terms, times, minlength=len(is_common)).astype(np.int64), out=offsets[1:])
    return offsets, np.repeat(owners[order], times[order]).astype(np.uint32)


def _terms_of(queries: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Return offsets by query, the distinct terms of each query in rising order, and their counts."""
    distinct = [np.unique(query, return_counts=True) for query in queries]
    offsets = np.zeros(len(queries) + 1, dtype=np.int64)
    np.cumsum([len(terms) for terms, _ in distinct], out=offsets[1:])
    terms = np.concatenate([np.zeros(0, dtype=np.int64), *(terms for terms, _ in distinct)])
    times = np.concatenate([np.zeros(0, dtype=np.int64), *(times for _, times in distinct)])
    return offsets, terms.astype(np.int32), times.astype(np.float64)


@njit
def _better(query, scores, positions, index, other):  # type: ignore[no-untyped-def]
    """Return whether entry `index` ranks above entry `other`, by score, then by corpus order."""
    score, other_score = scores[query, index], scores[query, other]
    return score > other_score or (score == other_score and positions[query, index] < positions[query, other])


@njit
def _swap(query, scores, positions, index, other):  # type: ignore[no-untyped-def]
    score, position = scores[query, index], positions[query, index]
    scores[query, index], positions[query, index] = scores[query, other], positions[query, other]
    scores[query, other], positions[query, other] = score, position


@njit
def _best_first(query, scores, positions, size, count):  # type: ignore[no-untyped-def]
    """Move the best `count` of a query's entries to the front, the worst of them to `count - 1` (Hoare's select)."""
    low, high = 0, size - 1
    while low < high:
        _swap(query, scores, positions, (low + high) // 2, high)  # the pivot
        border = low
        for index in range(low, high):
            if _better(query, scores, positions, index, high):
                _swap(query, scores, positions, index, border)
                border += 1
        _swap(query, scores, positions, border, high)
        if border == count - 1:
            return
        if border < count - 1:
            low = border + 1
        else:
            high = border - 1


@compiled(
    "void(uint32[::1], uint32[::1], uint32[::1], uint8[::1], int64, float64, float64, float64, float64[::1],"
    "boolean[::1], int64[::1], int32[::1], float64[::1], int64[::1], uint32[::1],"
    "float32[::1], float32[::1], float32[::1], float64[:, ::1], int64[:, ::1], int64[::1], float64[::1], int64,"
    "float32[::1], int32[::1], float64[::1], int32[::1])"
)
def score_passages(  # type: ignore[no-untyped-def]
    pairs, pair_counts, lengths, states, position, k1, b, mean_length, idf,
    is_common, query_offsets, query_terms, query_weights, posting_offsets, posting_queries,
    bounds, slack, start, best_scores, best_positions, sizes, limits, top_k,
    sums, sum_bits, weights, touched,
):  # fmt: skip
    """Score consecutive passages, from `position` on, against a block of queries.

    `states` are 0 for passages that are not in the corpus, 1 for passages to score, larger for dropped passages.
    `sum_bits` is `sums` as integers; `weights` (one per term) must be zero and is zero again at the end.
    """
    at = 0
    for passage in range(lengths.size):
        after = at + pair_counts[passage]
        if states[passage] != 1:
            at = after
            position += states[passage] != 0
            continue
        norm = k1 * (1.0 - b + b * lengths[passage] / mean_length)
        for query in range(sums.size):  # an assignment of arrays takes three times as long in Numba
            sums[query] = start[query]
        held = 0
        while at < after:
            term = pairs[at] >> np.uint32(8)
            times = np.int64(pairs[at] & np.uint32(255))
            while pairs[at] & np.uint32(255) == FULL_COUNT:
                at += 1
                times += np.int64(pairs[at] & np.uint32(255))
            at += 1
            weight = idf[term] * times / (times + norm)
            weights[term] = weight
            touched[held] = term
            held += 1
            if not is_common[term]:
                single = np.float32(weight)
                for entry in range(posting_offsets[term], posting_offsets[term + 1]):
                    sums[posting_queries[entry]] += single
        for group in range(0, sums.size, LANES):
            signs = np.int32(-1)
            for lane in range(LANES):
                signs &= sum_bits[group + lane]
            if signs < 0:
                continue
            for query in range(group, group + LANES):
                if sums[query] >= 0:
                    score = 0.0
                    for entry in range(query_offsets[query], query_offsets[query + 1]):
                        score += query_weights[entry] * weights[query_terms[entry]]
                    # A tie with the K-th score may win by corpus order, since shards come in any order.
                    if score < limits[query] or score == 0:
                        continue
                    size = sizes[query]
                    best_scores[query, size], best_positions[query, size] = score, position
                    sizes[query] = size + 1
                    if size + 1 == best_scores.shape[1]:
                        _best_first(query, best_scores, best_positions, size + 1, top_k)
                        sizes[query] = top_k
                        limits[query] = best_scores[query, top_k - 1]
                        reach = limits[query] + bounds[query]
                        start[query] = bounds[query] - limits[query] + slack[query] * reach
        for index in range(held):
            weights[touched[index]] = 0.0
        position += 1


@compiled("void(float64[:, ::1], int64[:, ::1], int64[::1], int64)")
def sort_best(scores, positions, sizes, top_k):  # type: ignore[no-untyped-def]
    """Sort the best `top_k` entries of each query, best first, and drop the others."""
    for query in range(sizes.size):
        if sizes[query] > top_k:
            _best_first(query, scores, positions, sizes[query], top_k)
            sizes[query] = top_k
        size = sizes[query]
        order = np.argsort(positions[query, :size])
        order = order[np.argsort(-scores[query, :size][order], kind="mergesort")]
        scores[query, :size] = scores[query, :size][order]
        positions[query, :size] = positions[query, :size][order]


def block_size(queries: int, slots: int, workers: int) -> int:
    """Return the queries per block: as many as cache and memory allow, so that all workers have equal blocks."""
    limit = max(1, min(_MAX_QUERIES, _MAX_BYTES // QueryBlock.bytes_per_query(slots)))
    rounds = -(-queries // (limit * workers))
    return max(1, -(-queries // max(1, rounds * workers)))
