"""Pass 2: what pass 1 left of each shard streams by once more, and every query keeps its best passages.

Threads share out the queries, not the passages: each query meets all passages in one thread, so the number of threads
cannot change a result, and the memory is set by queries and K alone. Shards that promise most come first: the sooner a
query has good passages, the fewer of the others it must look at closely. The order cannot change a result either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.progress import Advance, bar
from endtask.retrieval.join import Joined, JoinedShard
from endtask.retrieval.rankings import Rankings
from endtask.retrieval.score import Bm25, QueryBlock
from endtask.retrieval.shard_files import Chunk

Terms = NDArray[np.int64]

_MOST_QUERIES = 4096
"""Queries scored together by one thread; their sums fit into its first-level cache."""
_MOST_BYTES = 1 << 26
"""Memory for the best passages of the queries scored together by one thread."""


def rank_passages(
    joined: Joined, queries: Sequence[Terms], folder: Path, *, top_k: int, k1: float, b: float, workers: int
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


def _by_promise(joined: Joined, queries: Sequence[Terms]) -> list[JoinedShard]:
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


def _key(joined: Joined, queries: Sequence[Terms], top_k: int, k1: float, b: float) -> str:
    """What decides the rankings of a block of queries."""
    digest = hashlib.blake2b(repr((top_k, k1, b, joined.scored)).encode(), digest_size=12)
    for shard in joined.shards:
        digest.update(shard.folder.path.name.encode())
        digest.update(shard.states.tobytes())
    for query in queries:
        digest.update(query.astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()
