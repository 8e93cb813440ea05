"""First limits of the queries in pass 2, from a sample of the passages.

A query without a limit computes exact scores of all passages that share a word with it until it has K of them. So a
limit is estimated first: a score that probably more than K passages reach. A query that then has fewer is ranked again
without a limit, so the estimate cannot change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.bm25.score import Bm25, QueryBlock
from endtask.retrieval.bm25.shards import Chunk, ShardFolder

Queries = Sequence[NDArray[np.int64]]
States = NDArray[np.uint8]

_STEP = 64
"""One passage in so many is in the sample."""
_MOST_READ = 1 << 21
"""Passages of a larger corpus that are read for the sample, as whole shards."""
_DEVIATIONS = 4.0
"""Standard deviations of the number of sampled passages among the best K by which the estimate is lowered."""
_LARGEST_SHARE = 0.25
"""If a larger share of the passages is wanted, a limit gains nothing."""
_SCORED, _SKIPPED = 1, 2
"""States of passages, as the kernel reads them."""


@dataclass(frozen=True)
class RankedShard:
    """A shard with the states of its passages and the position of the first one in the corpus."""

    folder: ShardFolder
    states: States
    position: int


def chunks_of(shards: Iterable[RankedShard]) -> Iterator[tuple[Chunk, States, int]]:
    """Yield chunks with the states of their passages and the position of the first passage in the corpus."""
    for shard in shards:
        position = shard.position
        for chunk in shard.folder.chunks():
            states = shard.states[chunk.first : chunk.first + len(chunk.passages)]
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
    shards: Sequence[RankedShard], blocks: Sequence[Queries], bm25: Bm25, top_k: int, pool: ThreadPoolExecutor
) -> list[NDArray[np.float64] | None]:
    """Return for each block of queries scores that probably at least `top_k` passages reach; None: no limits."""
    total = sum(int(np.count_nonzero(shard.states == _SCORED)) for shard in shards)
    read = shards[:: ceil(sum(len(shard.states) for shard in shards) / _MOST_READ) or 1]
    thinned = [RankedShard(shard.folder, _thinned(shard.states), shard.position) for shard in read]
    sampled = sum(int(np.count_nonzero(shard.states == _SCORED)) for shard in thinned)
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
    shards: Sequence[RankedShard],
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
    score_chunks(again, chunks_of(shards), bm25, pool)
    for block, numbers, other in zip(blocks, short, again, strict=True):
        block.replace(numbers, other)


def _thinned(states: States) -> States:
    """Return states of which every `_STEP`-th passage is scored; positions in the corpus stay."""
    thinned = np.where(states == _SCORED, _SKIPPED, states).astype(np.uint8)
    thinned[::_STEP] = states[::_STEP]
    return thinned
