"""Between the passes: shards in corpus order give every passage its place, and the corpus its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.corpus.corpus import CorpusStatistics, SourceStatistics
from endtask.retrieval.compiled import compiled
from endtask.retrieval.key_set import KeySet, final_keys
from endtask.retrieval.near_duplicates import NearDuplicates
from endtask.retrieval.scan import FULL_COUNT, string_keys
from endtask.retrieval.shard_files import Chunk, Passages, ShardFolder
from endtask.retrieval.shards import Shard

ABSENT, SCORED, CONTAMINATED, NEAR_DUPLICATE = range(4)
"""What becomes of a passage: not in the corpus (a duplicate, or left out), scored, or in the corpus but dropped."""

States = NDArray[np.uint8]


@dataclass
class JoinedShard:
    """A shard with its place in the corpus: its passages that are there stand from `first_position` on."""

    shard: Shard
    folder: ShardFolder
    first_position: int
    states: States
    renames: NDArray[np.uint8]
    """By number of the passage: how often its id was taken (see `KeySet.add_names`)."""

    @property
    def passages(self) -> int:
        """How many of its passages are in the corpus."""
        return int(np.count_nonzero(self.states))

    def chunks(self) -> Iterator[tuple[Chunk, States]]:
        """The shard's chunks with the states of their passages."""
        for chunk in self.folder.chunks():
            yield chunk, self.states[chunk.first : chunk.first + len(chunk.passages)]


@dataclass(frozen=True)
class Joined:
    """The corpus after pass 1: all that pass 2 and the readers of single passages need."""

    shards: list[JoinedShard]
    scored: int
    mean_length: float
    document_frequency: NDArray[np.int64]
    statistics: CorpusStatistics
    is_contaminated: int
    near_duplicates: int
    unknown_exclusions: tuple[str, ...]
    """Ids of `corpus.exclude` that no document and no passage has."""

    @property
    def positions(self) -> int:
        """How many passages are in the corpus, whatever becomes of them."""
        return sum(shard.passages for shard in self.shards)

    def passage_sizes(self) -> NDArray[np.uint32]:
        """Bytes of text by position; 0 for those that are dropped."""
        parts = [np.zeros(0, dtype=np.uint32)]
        for shard in self.shards:
            for first, passages in shard.folder.passages():
                states = shard.states[first : first + len(passages)]
                parts.append(np.where(states == SCORED, passages["bytes"], 0)[states != ABSENT].astype(np.uint32))
        return np.concatenate(parts)

    def idf(self) -> NDArray[np.float64]:
        """Lucene's: ln(1 + (N - df + .5) / (df + .5))."""
        frequency = self.document_frequency
        weights: NDArray[np.float64] = np.log1p((self.scored - frequency + 0.5) / (frequency + 0.5))
        return weights


def join(
    corpus: Corpus, shards: Sequence[tuple[Shard, ShardFolder]], *, near_duplicates: float | None = None
) -> Joined:
    """Go over all shards in corpus order; equal passages are kept once, the first of them."""
    return _Joining(corpus, near_duplicates).join(shards)


class _Joining:
    def __init__(self, corpus: Corpus, near_duplicates: float | None) -> None:
        self._corpus = corpus
        self._ids, self._texts = KeySet(), KeySet()
        self._excluded = string_keys(sorted(corpus.exclude))
        self._not_met = np.ones(len(self._excluded), dtype=np.bool_)
        self._near = None if near_duplicates is None else NearDuplicates(near_duplicates)
        self._statistics = CorpusStatistics(
            {source.name: SourceStatistics(skipped_files=source.skipped) for source in corpus.sources}
        )

    def join(self, shards: Sequence[tuple[Shard, ShardFolder]]) -> Joined:
        joined: list[JoinedShard] = []
        position = words = 0
        frequency: NDArray[np.int64] | None = None
        for shard, folder in shards:
            states, renames = (np.zeros(folder.counts.passages, dtype=np.uint8) for _ in range(2))
            placed = JoinedShard(shard, folder, position, states, renames)
            words += self._place(placed)
            joined.append(placed)
            position += placed.passages
            found = _scored_frequency(placed)
            frequency = found if frequency is None else frequency + found
        assert frequency is not None
        self._statistics.check_not_empty(self._corpus.sources)
        counts = np.zeros(4, dtype=np.int64)
        for placed in joined:
            counts += np.bincount(placed.states, minlength=4)
        scored = int(counts[SCORED])
        return Joined(
            joined,
            scored,
            words / scored if scored else 0.0,
            frequency,
            self._statistics,
            int(counts[CONTAMINATED]),
            int(counts[NEAR_DUPLICATE]),
            tuple(name for name, left in zip(sorted(self._corpus.exclude), self._not_met, strict=True) if left),
        )

    def _place(self, placed: JoinedShard) -> int:
        """Fill in a shard's states and renames; returns how many words are scored."""
        counts = self._statistics.sources[placed.shard.source.name]
        counts.documents += placed.folder.counts.documents
        counts.empty += placed.folder.counts.empty
        words = 0
        signatures = placed.folder.signatures() if self._near else None
        for first, passages in placed.folder.passages():
            states = self._states(passages, first, placed, counts)
            if self._near and signatures is not None:
                candidates = np.flatnonzero(states == SCORED)
                alike = self._near.add(next(signatures)[candidates])
                states[candidates[alike]] = NEAR_DUPLICATE
            placed.states[first : first + len(states)] = states
            words += int(passages["words"][states == SCORED].sum(dtype=np.int64))
        return words

    def _states(self, passages: Passages, first: int, placed: JoinedShard, counts: SourceStatistics) -> States:
        keys = {name: np.ascontiguousarray(passages[name]) for name in ("id_key", "fallback_key", "text_key")}
        renames = self._ids.add_names(keys["id_key"], keys["fallback_key"])
        placed.renames[first : first + len(renames)] = renames
        final = final_keys(keys["id_key"], keys["fallback_key"], renames)
        present = ~self._is_excluded(final, passages["document_key"])
        counts.excluded += int(np.count_nonzero(~present))
        if self._corpus.deduplicate:
            before = np.count_nonzero(present)
            present[present] = self._texts.add(keys["text_key"][present])
            counts.duplicates += int(before - np.count_nonzero(present))
        counts.passages += int(np.count_nonzero(present))
        counts.bytes += int(passages["bytes"][present].sum(dtype=np.int64))
        states: States = np.where(passages["guarded"] > 0, CONTAMINATED, SCORED).astype(np.uint8)
        states[~present] = ABSENT
        return states

    def _is_excluded(self, *names: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which passages are to be left out by one of their names; notes the exclusions that were met."""
        hits = [np.isin(keys, self._excluded) for keys in names]
        met = np.concatenate([keys[hit] for keys, hit in zip(names, hits, strict=True)])
        self._not_met &= ~np.isin(self._excluded, met)
        either: NDArray[np.bool_] = np.any(hits, axis=0)
        return either


def _scored_frequency(placed: JoinedShard) -> NDArray[np.int64]:
    """In how many scored passages of a shard each term occurs."""
    frequency = placed.folder.document_frequency()
    if np.any(placed.states != SCORED):
        for chunk, states in placed.chunks():
            _forget(chunk.pairs, np.ascontiguousarray(chunk.passages["pairs"]), states == SCORED, frequency)
    return frequency


@compiled("void(uint32[::1], uint32[::1], boolean[::1], int64[::1])")
def _forget(pairs, pair_counts, is_scored, frequency):  # type: ignore[no-untyped-def]
    """Take the passages that are not scored out of the document frequencies."""
    at = 0
    for passage in range(pair_counts.size):
        for _ in range(pair_counts[passage]):
            is_last = pairs[at] & np.uint32(255) != FULL_COUNT
            if is_last and not is_scored[passage]:
                frequency[pairs[at] >> np.uint32(8)] -= 1
            at += 1
