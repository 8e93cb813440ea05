"""Join the shards between the passes: number the passages in corpus order, drop duplicates, sum the statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.corpus.corpus import CorpusStatistics, SourceStatistics
from endtask.retrieval.bm25.scan import FULL_COUNT, string_keys
from endtask.retrieval.bm25.shards import Chunk, Passages, Shard, ShardFolder
from endtask.retrieval.compiled import compiled, njit
from endtask.retrieval.words import HASH_FACTOR

ABSENT, SCORED, CONTAMINATED = range(3)
"""States of a passage: not in the corpus (an exact duplicate, or excluded), scored, or in the corpus but dropped."""

States = NDArray[np.uint8]
Keys = NDArray[np.uint64]

_MAX_LOAD = 0.75
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(HASH_FACTOR)
_TILDE = np.uint64(ord("~"))
_LONGEST_RENAME = 200


@dataclass
class PlacedShard:
    """A shard whose passages in the corpus have the positions from `first_position` on."""

    folder: ShardFolder
    first_position: int
    states: States

    @property
    def passages(self) -> int:
        """The number of its passages that are in the corpus."""
        return int(np.count_nonzero(self.states))

    def chunks(self) -> Iterator[tuple[Chunk, States]]:
        """Yield the shard's chunks with the states of their passages."""
        for chunk in self.folder.chunks():
            yield chunk, self.states[chunk.first : chunk.first + len(chunk.passages)]


@dataclass
class JoinedShard(PlacedShard):
    """A shard of the corpus; `renames` has the result of `KeySet.add_names` for the id of each passage."""

    shard: Shard
    renames: NDArray[np.uint8]


@dataclass(frozen=True)
class JoinedCorpus:
    """The corpus after pass 1.

    `unknown_exclusions` are ids of `corpus.exclude` that no document and no passage has.
    """

    shards: list[JoinedShard]
    scored: int
    mean_length: float
    document_frequency: NDArray[np.int64]
    statistics: CorpusStatistics
    contaminated: int
    unknown_exclusions: tuple[str, ...]

    @property
    def positions(self) -> int:
        """The number of passages in the corpus, scored or dropped."""
        return sum(shard.passages for shard in self.shards)

    def passage_sizes(self) -> NDArray[np.uint32]:
        """Return bytes of text by position; 0 for dropped passages."""
        parts = [np.zeros(0, dtype=np.uint32)]
        for shard in self.shards:
            for first, passages in shard.folder.passages():
                states = shard.states[first : first + len(passages)]
                parts.append(np.where(states == SCORED, passages["bytes"], 0)[states != ABSENT].astype(np.uint32))
        return np.concatenate(parts)

    def idf(self) -> NDArray[np.float64]:
        """Return Lucene's idf of every term: ln(1 + (N - df + .5) / (df + .5))."""
        frequency = self.document_frequency
        weights: NDArray[np.float64] = np.log1p((self.scored - frequency + 0.5) / (frequency + 0.5))
        return weights


def join(corpus: Corpus, shards: Sequence[tuple[Shard, ShardFolder]]) -> JoinedCorpus:
    """Join all shards in corpus order; of equal passages only the first stays in the corpus."""
    return _Joiner(corpus).join(shards)


class _Joiner:
    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._ids, self._texts = KeySet(), KeySet()
        self._excluded = string_keys(sorted(corpus.exclude))
        self._unknown = np.ones(len(self._excluded), dtype=np.bool_)
        self._statistics = CorpusStatistics.of(corpus.sources)

    def join(self, shards: Sequence[tuple[Shard, ShardFolder]]) -> JoinedCorpus:
        joined: list[JoinedShard] = []
        position = words = 0
        frequency: NDArray[np.int64] | None = None
        for shard, folder in shards:
            states, renames = (np.zeros(folder.counts.passages, dtype=np.uint8) for _ in range(2))
            joined_shard = JoinedShard(folder, position, states, shard, renames)
            words += self._fill_states(joined_shard)
            joined.append(joined_shard)
            position += joined_shard.passages
            shard_frequency = _scored_frequency(joined_shard)
            frequency = shard_frequency if frequency is None else frequency + shard_frequency
        assert frequency is not None
        self._statistics.check_not_empty(self._corpus.sources)
        counts = np.sum([np.bincount(shard.states, minlength=3) for shard in joined], axis=0)
        scored = int(counts[SCORED])
        return JoinedCorpus(
            joined,
            scored,
            words / scored if scored else 0.0,
            frequency,
            self._statistics,
            int(counts[CONTAMINATED]),
            tuple(name for name, unknown in zip(sorted(self._corpus.exclude), self._unknown, strict=True) if unknown),
        )

    def _fill_states(self, shard: JoinedShard) -> int:
        """Fill in a shard's states and renames; return the number of words in scored passages."""
        counts = self._statistics.sources[shard.shard.source.name]
        counts.documents += shard.folder.counts.documents
        counts.empty += shard.folder.counts.empty
        counts.add_skipped(shard.folder.counts.skipped, shard.folder.counts.first_skipped)
        words = 0
        for first, passages in shard.folder.passages():
            states = self._states(passages, first, shard, counts)
            shard.states[first : first + len(states)] = states
            words += int(passages["words"][states == SCORED].sum(dtype=np.int64))
        return words

    def _states(self, passages: Passages, first: int, shard: JoinedShard, counts: SourceStatistics) -> States:
        keys = {name: np.ascontiguousarray(passages[name]) for name in ("id_key", "fallback_key", "text_key")}
        renames = self._ids.add_names(keys["id_key"], keys["fallback_key"])
        shard.renames[first : first + len(renames)] = renames
        final = final_keys(keys["id_key"], keys["fallback_key"], renames)
        present = ~self._is_excluded(final, passages["document_key"])
        counts.excluded += int(np.count_nonzero(~present))
        if self._corpus.deduplicate:
            before = np.count_nonzero(present)
            present[present] = self._texts.add(keys["text_key"][present])
            counts.duplicates += int(before - np.count_nonzero(present))
        counts.passages += int(np.count_nonzero(present))
        counts.bytes += int(passages["bytes"][present].sum(dtype=np.int64))
        states: States = np.where(passages["contaminated"] > 0, CONTAMINATED, SCORED).astype(np.uint8)
        states[~present] = ABSENT
        return states

    def _is_excluded(self, *names: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which passages `corpus.exclude` names by document or passage id, and record these exclusions."""
        hits = [np.isin(keys, self._excluded) for keys in names]
        found = np.concatenate([keys[hit] for keys, hit in zip(names, hits, strict=True)])
        self._unknown &= ~np.isin(self._excluded, found)
        is_excluded: NDArray[np.bool_] = np.any(hits, axis=0)
        return is_excluded


class KeySet:
    """A growing set of 64-bit keys with operations on arrays: a hash table with linear probing, 11 to 22 bytes a key.

    >>> seen = KeySet()
    >>> seen.add(np.array([7, 8, 7], dtype=np.uint64)), len(seen)
    (array([ True,  True, False]), 2)
    """

    def __init__(self) -> None:
        self._slots: Keys = np.zeros(1 << 10, dtype=np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: Keys) -> NDArray[np.bool_]:
        """Add keys in order; return which of them were new."""
        self._grow(len(keys))
        is_new = np.zeros(len(keys), dtype=np.bool_)
        self._count += _add_keys(self._slots, self._shift(), keys, is_new)
        return is_new

    def add_names(self, keys: Keys, fallbacks: Keys) -> NDArray[np.uint8]:
        """Add the key of each name, or of the first variant of the name that is not taken; return the variants.

        0: the name itself; 1: its fallback; n + 1: the fallback followed by n tildes.
        """
        self._grow(len(keys))
        renames = np.zeros(len(keys), dtype=np.uint8)
        _add_names(self._slots, self._shift(), keys, fallbacks, renames)
        self._count += len(keys)
        return renames

    def _shift(self) -> int:
        return 64 - (len(self._slots) - 1).bit_length()

    def _grow(self, more: int) -> None:
        size = len(self._slots)
        while self._count + more > _MAX_LOAD * size:
            size *= 2
        if size > len(self._slots):
            keys = self._slots[self._slots != 0]
            self._slots = np.zeros(size, dtype=np.uint64)
            _add_keys(self._slots, self._shift(), keys, np.zeros(len(keys), dtype=np.bool_))


def final_keys(keys: Keys, fallbacks: Keys, renames: NDArray[np.uint8]) -> Keys:
    """Return the keys that `KeySet.add_names` added."""
    final: Keys = np.where(renames > 0, fallbacks, keys)
    for tildes in range(1, int(renames.max(initial=0))):
        final = np.where(renames > tildes, (final ^ _TILDE) * _FACTOR, final)
    return final


def _scored_frequency(shard: JoinedShard) -> NDArray[np.int64]:
    """Return the number of scored passages of a shard that contain each term."""
    frequency = shard.folder.document_frequency()
    if np.any(shard.states != SCORED):
        for chunk, states in shard.chunks():
            _subtract_dropped(chunk.pairs, np.ascontiguousarray(chunk.passages["pairs"]), states == SCORED, frequency)
    return frequency


@compiled("void(uint32[::1], uint32[::1], boolean[::1], int64[::1])")
def _subtract_dropped(pairs, pair_counts, is_scored, frequency):  # type: ignore[no-untyped-def]
    """Subtract the passages that are not scored from the document frequencies."""
    at = 0
    for passage in range(pair_counts.size):
        for _ in range(pair_counts[passage]):
            is_last = pairs[at] & np.uint32(255) != FULL_COUNT
            if is_last and not is_scored[passage]:
                frequency[pairs[at] >> np.uint32(8)] -= 1
            at += 1


@njit
def _enter(slots, shift, key):  # type: ignore[no-untyped-def]
    """Add a key; return whether it was new. 0 marks an empty slot, so the key 0 is stored as 1."""
    key = max(key, np.uint64(1))
    slot = np.int64((key * _SPREAD) >> np.uint64(shift))
    while slots[slot] != 0:
        if slots[slot] == key:
            return False
        slot = (slot + 1) & (slots.size - 1)
    slots[slot] = key
    return True


@compiled("int64(uint64[::1], int64, uint64[::1], boolean[::1])")
def _add_keys(slots, shift, keys, is_new):  # type: ignore[no-untyped-def]
    added = 0
    for index in range(keys.size):
        is_new[index] = _enter(slots, shift, keys[index])
        added += is_new[index]
    return added


@compiled("void(uint64[::1], int64, uint64[::1], uint64[::1], uint8[::1])")
def _add_names(slots, shift, keys, fallbacks, renames):  # type: ignore[no-untyped-def]
    for index in range(keys.size):
        key, tried = keys[index], 0
        while not _enter(slots, shift, key) and tried < _LONGEST_RENAME:
            # FNV-1a computes the key of a text followed by a tilde from the key of the text.
            key = fallbacks[index] if tried == 0 else (key ^ _TILDE) * _FACTOR
            tried += 1
        renames[index] = tried
