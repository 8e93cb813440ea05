"""First limits of the queries in pass 2, from a sample of the passages.

A query without a limit computes exact scores of all passages that share a word with it until it has K of them. So a
limit is estimated first: a score that probably more than K passages reach. A query that then has fewer is ranked again
without a limit, so the estimate cannot change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.bm25.join import CONTAMINATED, SCORED, PlacedShard, States
from endtask.retrieval.bm25.score import Bm25, QueryBlock
from endtask.retrieval.bm25.shards import Chunk

Queries = Sequence[NDArray[np.int64]]
Shards = Callable[[], Iterator[PlacedShard]]
"""Opens the shards one after the other: the states of all passages of a large corpus would take its memory."""

_STEP = 64
"""One passage in so many is in the sample."""
_MOST_READ = 1 << 21
"""Passages of a larger corpus that are read for the sample, as whole shards."""
_DEVIATIONS = 4.0
"""Standard deviations of the number of sampled passages among the best K by which the estimate is lowered."""
_LARGEST_SHARE = 0.25
"""If a larger share of the passages is wanted, a limit gains nothing."""


def chunks_of(shards: Iterable[PlacedShard]) -> Iterator[tuple[Chunk, States, int]]:
    """Yield chunks with the states of their passages and the position of the first passage in the corpus."""
    for shard in shards:
        position = shard.first_position
        for chunk, states in shard.chunks():
            yield chunk, states, position
            position += int(np.count_nonzero(states))


def score_chunks(
    blocks: Sequence[QueryBlock],
    chunks: Iterable[tuple[Chunk, States, int]],
    bm25: Bm25,
    pool: ThreadPoolExecutor,
    report: Callable[[int], None] = lambda count: None,
) -> None:
    """Score the passages of all chunks, a thread for each block of queries."""
    for chunk, states, position in chunks:
        list(pool.map(lambda block: block.score(chunk, states, position, bm25), blocks))  # noqa: B023
        report(int(np.count_nonzero(states)))


def first_limits(
    shards: Shards, blocks: Sequence[Queries], bm25: Bm25, top_k: int, pool: ThreadPoolExecutor
) -> list[NDArray[np.float64] | None]:
    """Return for each block of queries scores that probably at least `top_k` passages reach; None: no limits."""
    sizes = [(_count_scored(shard), len(shard.states)) for shard in shards()]
    total, passages = sum(scored for scored, _ in sizes), sum(size for _, size in sizes)
    read = islice(shards(), 0, None, ceil(passages / _MOST_READ) or 1)
    thinned = [replace(shard, states=_thinned(shard.states)) for shard in read]
    sampled = sum(map(_count_scored, thinned))
    expected = top_k * sampled / max(1, total)  # of the best K in the sample
    rank = max(1, ceil(expected + _DEVIATIONS * sqrt(expected)))
    if rank > _LARGEST_SHARE * sampled:
        return [None] * len(blocks)
    samples = [QueryBlock(queries, bm25, rank) for queries in blocks]
    score_chunks(samples, chunks_of(thinned), bm25, pool)
    return [sample.kth_scores() for sample in samples]


def rank_again(
    blocks: Sequence[QueryBlock],
    queries: Sequence[Queries],
    shards: Shards,
    bm25: Bm25,
    top_k: int,
    pool: ThreadPoolExecutor,
) -> None:
    """Rank without limits the queries that found fewer than `top_k` passages at their limits."""
    short = [block.short_of_passages() for block in blocks]
    if not any(len(numbers) for numbers in short):
        return
    again = [
        QueryBlock([each[number] for number in numbers], bm25, top_k)
        for each, numbers in zip(queries, short, strict=True)
    ]
    score_chunks(again, chunks_of(shards()), bm25, pool)
    for block, numbers, other in zip(blocks, short, again, strict=True):
        block.replace(numbers, other)


def _count_scored(shard: PlacedShard) -> int:
    return int(np.count_nonzero(shard.states == SCORED))


def _thinned(states: States) -> States:
    """Return states that drop all but every `_STEP`-th passage, as if contaminated; positions in the corpus stay."""
    thinned = np.where(states == SCORED, CONTAMINATED, states).astype(np.uint8)
    thinned[::_STEP] = states[::_STEP]
    return thinned
