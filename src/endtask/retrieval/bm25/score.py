"""Pass 2, compiled: every passage against the queries that share a word with it, each query's best K kept.

BM25 in Lucene's form: score(q, d) = sum over the words t of q of idf(t) * tf / (tf + k1 * (1 - b + b * |d| / mean)).

Few queries can gain from a passage, so a cheap upper bound in single precision comes first: the exact part of the
rarer words plus, for the commonest ones, the most they could ever give to the query. Only where the bound (with slack
for its rounding) reaches the query's K-th best score so far, the score itself is summed, in double precision and in
the order of the query's words. So neither the bound nor the number of threads can change a result.


Pass 2: what pass 1 left of each shard streams by once more, and every query keeps its best passages.

Threads share out the queries, not the passages: each query meets all passages in one thread, so the number of threads
cannot change a result, and the memory is set by queries and K alone. Shards that promise most come first: the sooner a
query has good passages, the fewer of the others it must look at closely. The order cannot change a result either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from endtask.progress import Advance, bar
from endtask.retrieval.bm25.join import JoinedCorpus, JoinedShard
from endtask.retrieval.bm25.rankings import RankedBlock, Rankings
from endtask.retrieval.bm25.scan import FULL_COUNT
from endtask.retrieval.bm25.shards import Chunk
from endtask.retrieval.compiled import compiled

LANES = 32
"""Queries are looked at in groups of this many; a block of queries is padded to whole groups."""

_COMMON = float(np.log(2))
"""Words of a lower idf, those in more than half of the passages, are common."""
_NO_LIMIT, _NEXT_TO_NOTHING = 3e38, -1e-37


@dataclass(frozen=True)
class Bm25:
    """The numbers of the formula."""

    idf: NDArray[np.float64]
    mean_length: float
    k1: float
    b: float


class QueryBlock:
    """Some of the queries, given as numbers of terms, with the best passages they have met so far."""

    def __init__(self, queries: Sequence[NDArray[np.int64]], bm25: Bm25, top_k: int) -> None:
        self.count = len(queries)
        self._top_k = top_k
        self._offsets, self._terms, self._weights = _terms_of(queries)
        owners = np.repeat(np.arange(self.count), np.diff(self._offsets))
        self._is_common = bm25.idf < _COMMON
        self._postings = _postings_of(self._terms, self._weights, owners, self._is_common)
        most = self._weights * bm25.idf[self._terms] * self._is_common[self._terms]
        self._bounds = self._padded(np.bincount(owners, most, minlength=self.count), 0.0)
        # Each of n additions in single precision may be off by 2**-24 of the largest sum on the way.
        additions = np.bincount(owners, self._weights, minlength=self.count) + 8.0
        self._slack = self._padded(additions * 2.0**-22, 0.0)
        # Until it has K passages, a query looks at all; one without common words, at those that share a word with it.
        self._start = self._padded(np.where(self._bounds[: self.count] > 0, _NO_LIMIT, _NEXT_TO_NOTHING), -1.0)
        room = _room(top_k)
        self._best_scores = np.zeros((self.count, room), dtype=np.float64)
        self._best_positions = np.zeros((self.count, room), dtype=np.int64)
        self._sizes = np.zeros(self.count, dtype=np.int64)
        self._limits = np.zeros(self.count, dtype=np.float64)
        self._sums = np.zeros_like(self._start)
        self._term_weights = np.zeros(len(bm25.idf), dtype=np.float64)
        self._touched = np.zeros(len(bm25.idf), dtype=np.int32)

    @staticmethod
    def bytes_per_query(top_k: int) -> int:
        """The memory each query takes, nearly."""
        return 16 * _room(top_k)

    def score(self, chunk: Chunk, states: NDArray[np.uint8], position: int, bm25: Bm25) -> None:
        """Meet a chunk of passages, the first of those in the corpus at `position`."""
        score_passages(
            chunk.pairs, np.ascontiguousarray(chunk.passages["pairs"]), np.ascontiguousarray(chunk.passages["words"]),
            states, position, bm25.k1, bm25.b, bm25.mean_length, bm25.idf,
            self._is_common, self._offsets, self._terms, self._weights, *self._postings,
            self._bounds, self._slack, self._start,
            self._best_scores, self._best_positions, self._sizes, self._limits, self._top_k,
            self._sums, self._sums.view(np.int32), self._term_weights, self._touched,
        )  # fmt: skip

    def ranked(self, first: int) -> RankedBlock:
        """The rankings, once all chunks were met; `first` is the number of the block's first query."""
        sort_best(self._best_scores, self._best_positions, self._sizes, self._top_k)
        is_held = np.arange(self._best_scores.shape[1]) < self._sizes[:, None]  # (queries, room)
        return RankedBlock(first, self._sizes, self._best_positions[is_held], self._best_scores[is_held])

    def _padded(self, values: NDArray[Any], filler: float) -> NDArray[np.float32]:
        padded = np.full(-(-max(1, self.count) // LANES) * LANES, filler, dtype=np.float32)
        padded[: self.count] = values
        return padded


def _room(top_k: int) -> int:
    """Places for a query's passages: when they are full, all but the best K are let go."""
    return top_k + max(top_k // 2, 64)


def _postings_of(
    terms: NDArray[np.int32], weights: NDArray[np.float64], owners: NDArray[np.int64], is_common: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The queries that hold each term that is not common: offsets by term, and queries, as often as they hold it."""
    times = np.where(is_common[terms], 0, weights).astype(np.int64)
    order = np.argsort(terms, kind="stable")
    offsets = np.zeros(len(is_common) + 1, dtype=np.int64)
    np.cumsum(np.bincount(terms, times, minlength=len(is_common)).astype(np.int64), out=offsets[1:])
    return offsets, np.repeat(owners[order], times[order]).astype(np.uint32)


def _terms_of(queries: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """Each query's terms in rising order with the times each is asked for; a word asked twice counts twice."""
    distinct = [np.unique(query, return_counts=True) for query in queries]
    offsets = np.zeros(len(queries) + 1, dtype=np.int64)
    np.cumsum([len(terms) for terms, _ in distinct], out=offsets[1:])
    terms = np.concatenate([np.zeros(0, dtype=np.int64), *(terms for terms, _ in distinct)])
    times = np.concatenate([np.zeros(0, dtype=np.int64), *(times for _, times in distinct)])
    return offsets, terms.astype(np.int32), times.astype(np.float64)


@numba.njit
def _better(query, scores, positions, place, other):  # type: ignore[no-untyped-def]
    """Whether the entry at `place` ranks above the one at `other`: by score, then by place in the corpus."""
    score, other_score = scores[query, place], scores[query, other]
    return score > other_score or (score == other_score and positions[query, place] < positions[query, other])


@numba.njit
def _swap(query, scores, positions, place, other):  # type: ignore[no-untyped-def]
    score, position = scores[query, place], positions[query, place]
    scores[query, place], positions[query, place] = scores[query, other], positions[query, other]
    scores[query, other], positions[query, other] = score, position


@numba.njit
def _best_first(query, scores, positions, size, count):  # type: ignore[no-untyped-def]
    """Bring the best `count` of a query's entries to the front, the last of them at `count - 1` (Hoare's select)."""
    low, high = 0, size - 1
    while low < high:
        _swap(query, scores, positions, (low + high) // 2, high)  # the pivot; entries come in no order of score
        border = low
        for place in range(low, high):
            if _better(query, scores, positions, place, high):
                _swap(query, scores, positions, place, border)
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
    """Score neighbouring passages, the first of them at `position`, against one block of queries.

    `states` are 0 for passages that are not in the corpus, 1 for those to score, above for those that are dropped.
    `sum_bits` is `sums` as integers; `weights` (one per term) must be zero and is left so.
    """
    at = 0
    for passage in range(lengths.size):
        after = at + pair_counts[passage]
        if states[passage] != 1:
            at = after
            position += states[passage] != 0
            continue
        norm = k1 * (1.0 - b + b * lengths[passage] / mean_length)
        sums[:] = start
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
                    # With the score of the K-th, the place in the corpus decides, and passages come in any order.
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
    """Leave each query its best `top_k` entries in order, best first."""
    for query in range(sizes.size):
        if sizes[query] > top_k:
            _best_first(query, scores, positions, sizes[query], top_k)
            sizes[query] = top_k
        size = sizes[query]
        order = np.argsort(positions[query, :size])
        order = order[np.argsort(-scores[query, :size][order], kind="mergesort")]
        scores[query, :size] = scores[query, :size][order]
        positions[query, :size] = positions[query, :size][order]


Terms = NDArray[np.int64]

_MOST_QUERIES = 4096
"""Queries scored together by one thread; their sums fit into its first-level cache."""
_MOST_BYTES = 1 << 26
"""Memory for the best passages of the queries scored together by one thread."""


def rank_passages(
    joined: JoinedCorpus, queries: Sequence[Terms], folder: Path, *, top_k: int, k1: float, b: float, workers: int
) -> Rankings:
    """Rank the corpus for queries given as numbers of terms; blocks of queries that are ranked already stay."""
    folder.mkdir(parents=True, exist_ok=True)
    room = min(top_k, max(1, joined.scored))
    # The mean is 0 where no passage has a word: nothing is found then, whatever lengths are divided by.
    bm25 = Bm25(joined.idf(), joined.mean_length or 1.0, k1, b)
    firsts = range(0, len(queries), _block_size(len(queries), room, workers))
    paths = [
        folder / f"{first}-{_key(joined, queries[first : first + firsts.step], top_k, k1, b)}.npz" for first in firsts
    ]
    missing = [(first, path) for first, path in zip(firsts, paths, strict=True) if not path.exists()]
    for other in set(folder.glob("*.npz")) - set(paths):
        other.unlink()
    shards = _by_promise(joined, queries) if missing else []
    rounds = -(-len(missing) // workers)
    with bar("rank passages", rounds * joined.positions or None, unit="passages") as advance:
        for together in (missing[start : start + workers] for start in range(0, len(missing), workers)):
            blocks = [QueryBlock(queries[first : first + firsts.step], bm25, room) for first, _ in together]
            _score(shards, blocks, bm25, advance)
            for block, (first, path) in zip(blocks, together, strict=True):
                block.ranked(first).save(path)
    return Rankings(paths, firsts, len(queries))


def number_terms(words: Sequence[str], queries: Sequence[Sequence[str]]) -> list[Terms]:
    """The words of each query as their numbers among `words`."""
    numbers = {word: number for number, word in enumerate(words)}
    return [np.asarray([numbers[word] for word in query], dtype=np.int64) for query in queries]


def _block_size(queries: int, room: int, workers: int) -> int:
    """Queries per block: as many as cache and memory allow, in a number of blocks that all threads share evenly."""
    most = max(1, min(_MOST_QUERIES, _MOST_BYTES // QueryBlock.bytes_per_query(room)))
    rounds = -(-queries // (most * workers))
    return max(1, -(-queries // max(1, rounds * workers)))


def _by_promise(joined: JoinedCorpus, queries: Sequence[Terms]) -> list[JoinedShard]:
    """The shards by the mean weight that a passage's words have over all queries, the greatest first."""
    asked = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *queries]), minlength=len(joined.idf()))
    weights = asked * joined.idf()
    promises = [
        float(shard.folder.document_frequency() @ weights) / max(1, shard.folder.counts.passages)
        for shard in joined.shards
    ]
    return [joined.shards[place] for place in np.argsort(-np.asarray(promises), kind="stable")]


def _score(shards: Sequence[JoinedShard], blocks: list[QueryBlock], bm25: Bm25, advance: Advance) -> None:
    with ThreadPoolExecutor(len(blocks)) as pool:
        for chunk, states, position in _chunks(shards):
            list(pool.map(lambda block: block.score(chunk, states, position, bm25), blocks))  # noqa: B023
            advance(int(np.count_nonzero(states)))


def _chunks(shards: Sequence[JoinedShard]) -> Iterator[tuple[Chunk, NDArray[np.uint8], int]]:
    """Chunks with their passages' states and the position of the first that is in the corpus."""
    for shard in shards:
        position = shard.first_position
        for chunk, states in shard.chunks():
            yield chunk, states, position
            position += int(np.count_nonzero(states))


def _key(joined: JoinedCorpus, queries: Sequence[Terms], top_k: int, k1: float, b: float) -> str:
    """What decides the rankings of a block of queries."""
    digest = hashlib.blake2b(repr((top_k, k1, b, joined.scored)).encode(), digest_size=12)
    for shard in joined.shards:
        digest.update(shard.folder.path.name.encode())
        digest.update(shard.states.tobytes())
    for query in queries:
        digest.update(query.astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()
