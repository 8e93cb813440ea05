"""Between the passes: shards in corpus order give every passage its place, and the corpus its statistics.

A growing set of 64-bit keys for whole arrays of them, compiled: which passages were seen before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from endtask.corpus import Corpus
from endtask.corpus.statistics import CorpusStatistics, SourceStatistics
from endtask.retrieval.bm25.scan import FULL_COUNT, string_keys
from endtask.retrieval.bm25.shards import Chunk, Passages, Shard, ShardFolder
from endtask.retrieval.compiled import compiled
from endtask.retrieval.near_duplicates import NearDuplicates
from endtask.retrieval.words import HASH_FACTOR

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
class JoinedCorpus:
    """The corpus after pass 1: all that pass 2 and the readers of single passages need."""

    shards: list[JoinedShard]
    scored: int
    mean_length: float
    document_frequency: NDArray[np.int64]
    statistics: CorpusStatistics
    contaminated: int
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
) -> JoinedCorpus:
    """Go over all shards in corpus order; equal passages are kept once, the first of them."""
    return _Joiner(corpus, near_duplicates).join(shards)


class _Joiner:
    def __init__(self, corpus: Corpus, near_duplicates: float | None) -> None:
        self._corpus = corpus
        self._ids, self._texts = KeySet(), KeySet()
        self._excluded = string_keys(sorted(corpus.exclude))
        self._not_met = np.ones(len(self._excluded), dtype=np.bool_)
        self._near = None if near_duplicates is None else NearDuplicates(near_duplicates)
        self._statistics = CorpusStatistics(
            {source.name: SourceStatistics(skipped_files=source.skipped) for source in corpus.sources}
        )

    def join(self, shards: Sequence[tuple[Shard, ShardFolder]]) -> JoinedCorpus:
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
        return JoinedCorpus(
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
        states: States = np.where(passages["contaminated"] > 0, CONTAMINATED, SCORED).astype(np.uint8)
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


Keys = NDArray[np.uint64]

_FULLEST = 0.75
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(HASH_FACTOR)
_TILDE = np.uint64(ord("~"))
_LONGEST_RENAME = 200


class KeySet:
    """One flat table with linear probing, at most three quarters full: 11 to 22 bytes a key.

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
        """Add keys one after the other; which of them were new."""
        self._make_room(len(keys))
        is_new = np.zeros(len(keys), dtype=np.bool_)
        self._count += _add_keys(self._slots, self._shift(), keys, is_new)
        return is_new

    def add_names(self, keys: Keys, fallbacks: Keys) -> NDArray[np.uint8]:
        """Add each name by its key, or, where that is taken, another name.

        0: its own; 1: the fallback; n + 1: the fallback with n more tildes at its end.
        """
        self._make_room(len(keys))
        renames = np.zeros(len(keys), dtype=np.uint8)
        _add_names(self._slots, self._shift(), keys, fallbacks, renames)
        self._count += len(keys)
        return renames

    def _shift(self) -> int:
        return 64 - (len(self._slots) - 1).bit_length()

    def _make_room(self, more: int) -> None:
        wanted = len(self._slots)
        while self._count + more > _FULLEST * wanted:
            wanted *= 2
        if wanted > len(self._slots):
            held = self._slots[self._slots != 0]
            self._slots = np.zeros(wanted, dtype=np.uint64)
            _add_keys(self._slots, self._shift(), held, np.zeros(len(held), dtype=np.bool_))


def final_keys(keys: Keys, fallbacks: Keys, renames: NDArray[np.uint8]) -> Keys:
    """The keys of the names that `KeySet.add_names` gave."""
    final: Keys = np.where(renames > 0, fallbacks, keys)
    for tildes in range(1, int(renames.max(initial=0))):
        final = np.where(renames > tildes, (final ^ _TILDE) * _FACTOR, final)
    return final


@numba.njit
def _enter(slots, shift, key):  # type: ignore[no-untyped-def]
    """Add one key; whether it was new. 0 marks an empty slot, so the key 0 is taken for 1."""
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
            # The key of a text with one more letter follows from the key of the text (FNV-1a).
            key = fallbacks[index] if tried == 0 else (key ^ _TILDE) * _FACTOR
            tried += 1
        renames[index] = tried
