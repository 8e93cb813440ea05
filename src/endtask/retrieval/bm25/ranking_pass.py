"""Pass 2 ranks the corpus for all queries, in blocks of queries and groups of shards.

The threads of a machine divide the queries, not the passages: one thread scores all passages of a group for a query, so
memory depends on queries and K alone. Machines divide the shards: each ranks a group of them for all queries, and the
best K of the groups are merged as a tree. Shards with the highest expected scores come first: the sooner a query has
good passages, the fewer exact scores it needs. No number of threads or groups and no order of shards can change a
result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.executors.base import Executor, Job, Report
from endtask.executors.processes import LocalExecutor
from endtask.io.atomic import atomic_file
from endtask.io.digests import fingerprint
from endtask.io.machine import usable_cores
from endtask.io.processes import run_lock
from endtask.progress import bar
from endtask.retrieval.bm25.join import JoinedCorpus, JoinedShard, PlacedShard
from endtask.retrieval.bm25.limits import chunks_of, first_limits, rank_again, score_chunks
from endtask.retrieval.bm25.rankings import Rankings, merge
from endtask.retrieval.bm25.score import Bm25, QueryBlock, block_size
from endtask.retrieval.bm25.shards import ShardFolder
from endtask.retrieval.bm25.statistics_pass import ScanSpec, read_corpus
from endtask.retrieval.words import words_of

Terms = NDArray[np.int64]

_INPUTS = "inputs"
"""Folder of what the jobs read: the queries, and the states of the passages of each shard."""
_GROUPS_FOR_EACH = 2
"""Groups of shards for each machine of several: a machine that is done early takes a second one from a slow machine."""


@dataclass(frozen=True)
class RankSpec:
    """All queries as term numbers, the constants of BM25, and K."""

    queries: tuple[Terms, ...]
    bm25: Bm25
    top_k: int

    def save(self, path: Path) -> None:
        """Write the spec for other processes."""
        terms = np.concatenate([np.zeros(0, dtype=np.int64), *self.queries])
        sizes = np.asarray([len(query) for query in self.queries], dtype=np.int64)
        with atomic_file(path) as aside, open(aside, "wb") as file:
            np.savez(file, terms=terms, sizes=sizes, top_k=self.top_k, **vars(self.bm25))

    @classmethod
    def load(cls, path: Path) -> RankSpec:
        """Read a spec that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            queries = np.split(arrays["terms"], np.cumsum(arrays["sizes"])[:-1])
            constants = (float(arrays[name]) for name in ("mean_length", "k1", "b"))
            return cls(tuple(queries), Bm25(arrays["idf"], *constants), int(arrays["top_k"]))


def rank_passages(
    joined: JoinedCorpus, queries: Sequence[Terms], folder: Path, executor: Executor, *, top_k: int, k1: float, b: float
) -> Rankings:
    """Rank the corpus for queries given as term numbers; reuse the blocks of queries that are in `folder`."""
    (folder / _INPUTS).mkdir(parents=True, exist_ok=True)
    slots = min(top_k, max(1, joined.scored))
    threads = executor.cores_each
    firsts = range(0, len(queries), block_size(len(queries), slots, threads))
    corpus = _corpus_digest(joined, top_k, k1, b)
    paths = [folder / f"{first}-{_key(corpus, queries[first : first + firsts.step])}.npz" for first in firsts]
    missing = [(first, path) for first, path in zip(firsts, paths, strict=True) if not path.exists()]
    _remove_outdated(folder, paths)
    if missing:
        # The mean is 0 if no passage has a word; then nothing matches, whatever the divisor.
        bm25 = Bm25(joined.idf(), joined.mean_length or 1.0, k1, b)
        RankSpec(tuple(queries), bm25, slots).save(folder / _INPUTS / "spec.npz")
        blocks = [Block(first, min(first + firsts.step, len(queries)), path) for first, path in missing]
        _rank_blocks(_by_expected_score(joined, queries), blocks, folder, executor, slots)
    return Rankings(paths, firsts, len(queries))


@dataclass(frozen=True)
class Block:
    """Queries `first` to before `stop`, and the file of their rankings."""

    first: int
    stop: int
    path: Path


def _rank_blocks(shards: list[JoinedShard], blocks: list[Block], folder: Path, executor: Executor, top_k: int) -> None:
    """Rank groups of shards for each round of blocks, a block for each thread, and merge the groups."""
    groups = _groups_of(shards, executor.machines)
    entries = [[_entry(shard, folder / _INPUTS) for shard in group] for group in groups]
    keys = [fingerprint([shard.folder.path.name for shard in group]) for group in groups]
    threads = executor.cores_each
    jobs: list[Job] = []
    for start in range(0, len(blocks), threads):
        for group, key in zip(entries, keys, strict=True):
            parts = [(block, _part(block, key, len(groups))) for block in blocks[start : start + threads]]
            missing = [[block.first, block.stop, str(part)] for block, part in parts if not part.exists()]
            if missing:
                jobs.append({"spec": str(folder / _INPUTS / "spec.npz"), "shards": group, "blocks": missing})
    rounds = -(-len(blocks) // threads)
    positions = sum(shard.passages for shard in shards)
    with bar("rank passages", rounds * positions or None, unit="passages") as advance:
        executor.run(__name__, jobs, lambda passages: advance(passages), cores=threads)
    if len(groups) > 1:
        merge({block.path: [_part(block, key, len(groups)) for key in keys] for block in blocks}, executor, top_k)


def _part(block: Block, key: str, groups: int) -> Path:
    """Return the file of a block's rankings in a group: that of the block if there is only one group."""
    return block.path if groups == 1 else block.path.with_suffix(f".{key}.npz")


def _groups_of(shards: list[JoinedShard], machines: int) -> list[list[JoinedShard]]:
    """Divide the shards into groups of about equal size, one for a single machine; each keeps their order."""
    count = 1 if machines == 1 else min(len(shards), _GROUPS_FOR_EACH * machines)
    sizes, groups = [0] * count, [list[int]() for _ in range(count)]
    for index in sorted(range(len(shards)), key=lambda index: -shards[index].folder.counts.pairs):
        smallest = sizes.index(min(sizes))
        sizes[smallest] += shards[index].folder.counts.pairs + 1
        groups[smallest].append(index)
    return [[shards[index] for index in sorted(group)] for group in groups]


def _entry(shard: JoinedShard, folder: Path) -> list[Any]:
    """Return what a job reads of a shard; write the states of its passages."""
    states = folder / f"{shard.folder.path.name}.npy"
    with atomic_file(states) as aside, open(aside, "wb") as file:
        np.save(file, shard.states)
    return [str(shard.folder.path), str(states), shard.first_position]


def handle(job: Job, report: Report) -> None:
    """Rank a group of shards for some blocks of queries, a thread for each block."""
    spec = _spec(job["spec"], Path(job["spec"]).stat().st_mtime_ns)
    queries = [spec.queries[first:stop] for first, stop, _ in job["blocks"]]

    def shards() -> Iterator[PlacedShard]:
        return (_opened(*entry) for entry in job["shards"])

    with ThreadPoolExecutor(len(queries)) as pool:
        limits = first_limits(shards, queries, spec.bm25, spec.top_k, pool)
        blocks = [QueryBlock(each, spec.bm25, spec.top_k, known) for each, known in zip(queries, limits, strict=True)]
        score_chunks(blocks, chunks_of(shards()), spec.bm25, pool, lambda count: report(passages=count))
        rank_again(blocks, queries, shards, spec.bm25, spec.top_k, pool)
        for _ in pool.map(lambda block, span: block.ranked(span[0]).save(Path(span[2])), blocks, job["blocks"]):
            pass


@lru_cache(maxsize=1)
def _spec(path: str, written: int) -> RankSpec:
    """Return the spec of this process; `written` distinguishes specs that were saved at the same path."""
    return RankSpec.load(Path(path))


def _opened(path: str, states: str, position: int) -> PlacedShard:
    folder = ShardFolder.open(Path(path))
    if folder is None:
        raise InputError("the statistics of a shard vanished while passages were ranked", path=path)
    return PlacedShard(folder, position, np.load(states))


def _remove_outdated(folder: Path, current: Sequence[Path]) -> None:
    """Delete the files of other corpora or queries."""
    stems = {path.stem for path in current}
    for path in folder.glob("*.npz"):
        if path.name.partition(".")[0] not in stems:
            path.unlink()


def number_terms(words: Sequence[str], queries: Sequence[Sequence[str]]) -> list[Terms]:
    """Return the words of each query as their indices in `words`."""
    numbers = {word: number for number, word in enumerate(words)}
    return [np.asarray([numbers[word] for word in query], dtype=np.int64) for query in queries]


def _by_expected_score(joined: JoinedCorpus, queries: Sequence[Terms]) -> list[JoinedShard]:
    """Sort the shards by the mean weight of a passage's words over all queries, the largest first."""
    counts = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *queries]), minlength=len(joined.idf()))
    weights = counts * joined.idf()
    means = [
        float(shard.folder.document_frequency() @ weights) / max(1, shard.folder.counts.passages)
        for shard in joined.shards
    ]
    return [joined.shards[index] for index in np.argsort(-np.asarray(means), kind="stable")]


def _corpus_digest(joined: JoinedCorpus, top_k: int, k1: float, b: float) -> hashlib.blake2b:
    """Return a hash of all but the queries that determines rankings."""
    digest = hashlib.blake2b(repr((top_k, k1, b, joined.scored)).encode(), digest_size=12)
    for shard in joined.shards:
        digest.update(shard.folder.path.name.encode())
        digest.update(shard.states.tobytes())
    return digest


def _key(corpus: hashlib.blake2b, queries: Sequence[Terms]) -> str:
    """Return a hash of all that determines the rankings of a block of queries."""
    digest = corpus.copy()
    for query in queries:
        digest.update(query.astype("<i8").tobytes())
        digest.update(b"|")
    return digest.hexdigest()


def search(
    corpus: Corpus,
    queries: Sequence[str],
    *,
    top_k: int,
    folder: Path,
    k1: float = 1.2,
    b: float = 0.75,
    workers: int | None = None,
) -> Rankings:
    """Rank the passages of `corpus` for every query; `folder` holds the scratch files and the rankings.

    Scores are exact BM25 (Lucene's form). A passage is identified by its index in `corpus.documents()`. A ranking omits
    passages that share no word with its query; ties are in corpus order. A second call resumes an interrupted call.
    """
    for name, value, least in (("top_k", top_k, 1), ("k1", k1, 0), ("b", b, 0), ("workers", workers or 1, 1)):
        if not value >= least:
            raise InputError(f"must be at least {least}", key=name)
    if b > 1:
        raise InputError("must be at most 1", key="b")
    folder.mkdir(parents=True, exist_ok=True)
    executor = LocalExecutor(workers or usable_cores())
    query_words = [words_of(query) for query in queries]
    spec = ScanSpec.of(word for words in query_words for word in words)
    with run_lock(folder):
        joined = read_corpus(corpus, spec, folder / "shards", executor)
        terms = number_terms(spec.words, query_words)
        return rank_passages(joined, terms, folder / "rankings", executor, top_k=top_k, k1=k1, b=b)
