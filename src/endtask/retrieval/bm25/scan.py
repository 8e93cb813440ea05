"""The kernel of pass 1 scans passages as bytes: word counts, counts of query words, and keys of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.retrieval.compiled import compiled, njit
from endtask.retrieval.contamination import ContaminationIndex, may_be_contaminated
from endtask.retrieval.words import (
    BLANK,
    HASH_FACTOR,
    HASH_START,
    IDEOGRAPH,
    LETTER,
    character_classes,
    lower_cases,
)

Bytes = NDArray[np.uint8]

MOST_TERMS = 1 << 24
"""A term and its count share 32 bits."""
FULL_COUNT = 255
"""A count of this value continues in the next pair."""

_START = np.uint64(HASH_START)
_FACTOR = np.uint64(HASH_FACTOR)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_TERM_BITS, _TERM_MASK = np.uint64(24), np.uint64(MOST_TERMS - 1)
_BLANK = np.uint64(32)
_DOTTED_CAPITAL_I, _DOT_ABOVE = 0x130, np.uint64(0x307)  # the only character whose lower case is two characters
_LINE_OR_SENTENCE_ENDS = b".!?\n\r\v\f\x1c\x1d\x1e"


class Terms:
    """The numbered words of all queries as a hash table for the kernel, which compares hits letter by letter."""

    def __init__(self, words: Sequence[str]) -> None:
        if len(words) >= MOST_TERMS:
            message = f"{len(words):,} different words in the queries; the limit is {MOST_TERMS - 1:,}"
            raise InputError(message, key="retrieve.query", hint="rake and idf use fewer words")
        self.points, self.offsets = join_strings(words, "utf-32-le", np.uint32)
        bits = max(8, (4 * len(words)).bit_length())
        self.shift = 64 - bits
        self.slots = np.zeros(1 << bits, dtype=np.uint64)
        """Open addressing: the high bits of a word's hash, and in the low 24 bits its number from 1."""
        _fill_terms(self.points, self.offsets, self.shift, self.slots)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Scanned:
    """The statistics of a block of passages; arrays have one entry per passage unless stated otherwise."""

    sizes: NDArray[np.int64]
    """Bytes of text."""
    lengths: NDArray[np.uint32]
    """Words."""
    pair_counts: NDArray[np.uint32]
    pairs: NDArray[np.uint32]
    """The query words of all passages, concatenated, in order of first occurrence: term << 8 | count (`FULL_COUNT`)."""
    text_keys: NDArray[np.uint64]
    """Equal for texts that differ only in white space."""
    suspects: NDArray[np.bool_]
    """Whether `ContaminationFilter.confirm` must check the passage."""


class Scanner:
    """Runs the kernel over blocks of texts; `document_frequency` sums over all of them."""

    def __init__(self, terms: Terms, contamination_filter: ContaminationIndex) -> None:
        self._terms = terms
        self._contamination_filter = contamination_filter
        self.document_frequency = np.zeros(len(terms), dtype=np.int64)
        self._counts = np.zeros(len(terms), dtype=np.int64)
        self._pairs = np.empty(0, dtype=np.uint32)

    def scan(self, texts: Sequence[str]) -> Scanned:
        """Return the statistics of the texts; the next call overwrites `pairs`."""
        buffer, offsets = join_strings(texts, "utf-8", np.uint8)
        count = len(texts)
        longest = int(np.diff(offsets).max(initial=0))
        lengths = np.zeros(count, dtype=np.uint32)
        pair_counts = np.zeros(count, dtype=np.uint32)
        most_pairs = len(buffer) // 2 + count + 1  # a word takes a byte and a gap
        if len(self._pairs) < most_pairs:
            self._pairs = np.empty(most_pairs, dtype=np.uint32)
        keys = np.zeros(count, dtype=np.uint64)
        suspects = np.zeros(count, dtype=np.bool_)
        terms = self._terms
        used = scan_passages(
            buffer, offsets, character_classes(), lower_cases(), ascii_folds(), _ascii_breaks(),
            terms.points, terms.offsets, terms.shift, terms.slots, *self._contamination_filter,
            self._counts, np.empty(longest + 1, dtype=np.int32),
            np.empty(longest + 1, dtype=np.uint64), np.empty(longest + 1, dtype=np.uint8),
            lengths, pair_counts, self._pairs, keys, suspects, self.document_frequency,
        )  # fmt: skip
        return Scanned(np.diff(offsets), lengths, pair_counts, self._pairs[:used], keys, suspects)


def join_strings(texts: Sequence[str], encoding: str, kind: type) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Encode texts end to end: text i is `joined[offsets[i]:offsets[i + 1]]`."""
    parts = [text.encode(encoding) for text in texts]
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    joined: NDArray[Any] = np.frombuffer(bytearray().join(parts), dtype=kind)  # an array of bytes would be read-only
    return joined, offsets // joined.itemsize


def string_keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Return a 64-bit key of each text's bytes (FNV-1a)."""
    keys = np.zeros(len(texts), dtype=np.uint64)
    _hash_strings(*join_strings(texts, "utf-8", np.uint8), keys)
    return keys


@cache
def ascii_folds() -> Bytes:
    """Return the lower case of each ASCII letter or digit; 0 for other characters."""
    classes, lower = character_classes(), lower_cases()
    return np.where(classes[:128] == LETTER, lower[:128], 0).astype(np.uint8)


@cache
def _ascii_breaks() -> Bytes:
    """Return 1 for each ASCII character that may end a sentence."""
    breaks = np.zeros(128, dtype=np.uint8)
    breaks[list(_LINE_OR_SENTENCE_ENDS)] = 1
    return breaks


@njit
def code_point(buffer, offset):  # type: ignore[no-untyped-def]
    """Return the character that starts at `offset`, and its size in bytes."""
    first = np.uint32(buffer[offset])
    if first < 0x80:
        return first, 1
    second = np.uint32(buffer[offset + 1]) & np.uint32(0x3F)
    if first < 0xE0:
        return (first & np.uint32(0x1F)) << np.uint32(6) | second, 2
    third = np.uint32(buffer[offset + 2]) & np.uint32(0x3F)
    if first < 0xF0:
        return (first & np.uint32(0x0F)) << np.uint32(12) | second << np.uint32(6) | third, 3
    fourth = np.uint32(buffer[offset + 3]) & np.uint32(0x3F)
    high = (first & np.uint32(0x07)) << np.uint32(18) | second << np.uint32(12)
    return high | third << np.uint32(6) | fourth, 4


@njit
def _lower(point, lower):  # type: ignore[no-untyped-def]
    return lower[point] if point < lower.size else point


@njit
def _is_term(buffer, start, stop, lower, points, first, last):  # type: ignore[no-untyped-def]
    """Return whether the word in `buffer[start:stop]` is the term in `points[first:last]`."""
    offset = start
    at = first
    while offset < stop:
        point, size = code_point(buffer, offset)
        if at >= last or _lower(point, lower) != points[at]:
            return False
        at += 1
        if point == _DOTTED_CAPITAL_I:
            if at >= last or points[at] != _DOT_ABOVE:
                return False
            at += 1
        offset += size
    return at == last


@njit
def rest_of_word(buffer, start, offset, stop, value, key, classes, lower):  # type: ignore[no-untyped-def]
    """Read the word that begins at `start` from `offset` to its end; return the end, its hash and the text's key."""
    while offset < stop:
        point, size = code_point(buffer, offset)
        kind = classes[point]
        if kind == IDEOGRAPH and offset == start:
            return offset + size, (value ^ np.uint64(point)) * _FACTOR, (key ^ np.uint64(point)) * _FACTOR
        if kind != LETTER:
            break
        key = (key ^ np.uint64(point)) * _FACTOR
        value = (value ^ np.uint64(_lower(point, lower))) * _FACTOR
        if point == _DOTTED_CAPITAL_I:
            value = (value ^ _DOT_ABOVE) * _FACTOR
        offset += size
    return offset, value, key


@njit
def _flush(touched, found, counts, frequency, pairs, used):  # type: ignore[no-untyped-def]
    """Write the terms of a passage with their counts and reset the counts; return the number of pairs so far."""
    for index in range(found):
        term = touched[index]
        count = counts[term]
        counts[term] = 0
        frequency[term] += 1
        packed = np.uint32(term) << np.uint32(8)
        while count >= FULL_COUNT:
            pairs[used] = packed | np.uint32(FULL_COUNT)
            used += 1
            count -= FULL_COUNT
        pairs[used] = packed | np.uint32(count)
        used += 1
    return used


@compiled(
    "int64(uint8[::1], int64[::1], uint8[::1], uint32[::1], uint8[::1], uint8[::1],"
    "uint32[::1], int64[::1], int64, uint64[::1], uint64[::1], uint64[::1], uint64[::1], uint8[::1],"
    "int64[::1], int32[::1], uint64[::1], uint8[::1],"
    "uint32[::1], uint32[::1], uint32[::1], uint64[::1], boolean[::1], int64[::1])"
)
def scan_passages(  # type: ignore[no-untyped-def]
    buffer, offsets, classes, lower, folds, break_bytes,
    points, point_offsets, shift, slots,
    contamination_bits, contamination_runs, contamination_shorts, contamination_lengths,
    counts, touched, hashes, breaks,
    lengths, pair_counts, pairs, keys, suspects, frequency,
):  # fmt: skip
    """Scan passages in order; return the number of pairs written.

    `counts` (one per term) must be zero and is zero again at the end; `touched`, `hashes` and `breaks` are scratch
    arrays for one passage.
    """
    used = 0
    mask = slots.size - 1
    for passage in range(offsets.size - 1):
        offset, stop = offsets[passage], offsets[passage + 1]
        key = _START  # hash of the text with each run of white space as a blank, and none at the ends
        blank = False  # whether the last character is white space
        words = 0
        found = 0
        ended = True  # whether a sentence may have ended since the last word
        while offset < stop:
            start = offset
            value = _START
            before = key
            if blank and key != _START:
                key = (key ^ _BLANK) * _FACTOR
            while offset < stop and buffer[offset] < 128:  # inline, since calls with arrays are slow in Numba
                folded = folds[buffer[offset]]
                if folded == 0:
                    break
                value = (value ^ np.uint64(folded)) * _FACTOR
                key = (key ^ np.uint64(buffer[offset])) * _FACTOR
                offset += 1
            plain = offset == stop or buffer[offset] < 128
            if not plain:
                offset, value, key = rest_of_word(buffer, start, offset, stop, value, key, classes, lower)
            if offset == start:
                point, size = code_point(buffer, offset)
                ended |= not plain or break_bytes[point] != 0
                if classes[point] == BLANK:
                    key = before
                    blank = True
                else:
                    key = (key ^ np.uint64(point)) * _FACTOR
                    blank = False
                offset += size
                continue
            blank = False
            hashes[words] = value
            breaks[words] = ended
            words += 1
            ended = False
            slot = np.int64((value * _SPREAD) >> np.uint64(shift))
            while slots[slot] != 0:
                if (slots[slot] ^ value) >> _TERM_BITS == 0:
                    term = np.int64(slots[slot] & _TERM_MASK) - 1
                    first, last = point_offsets[term], point_offsets[term + 1]
                    if plain:
                        same = last - first == offset - start
                        at = 0
                        while same and at < offset - start:
                            same = points[first + at] == folds[buffer[start + at]]
                            at += 1
                    else:
                        same = _is_term(buffer, start, offset, lower, points, first, last)
                    if same:
                        if counts[term] == 0:
                            touched[found] = term
                            found += 1
                        counts[term] += 1
                        break
                slot = (slot + 1) & mask
        keys[passage] = key
        lengths[passage] = words
        pair_counts[passage] = -used
        used = _flush(touched, found, counts, frequency, pairs, used)
        pair_counts[passage] += used
        suspects[passage] = may_be_contaminated(
            hashes, breaks, words, contamination_bits, contamination_runs, contamination_shorts, contamination_lengths
        )
    return used


@compiled("void(uint32[::1], int64[::1], int64, uint64[::1])")
def _fill_terms(points, offsets, shift, slots):  # type: ignore[no-untyped-def]
    """Enter all terms into the hash table; they differ, so no comparison is needed."""
    mask = slots.size - 1
    for term in range(offsets.size - 1):
        value = _START
        for at in range(offsets[term], offsets[term + 1]):
            value = (value ^ np.uint64(points[at])) * _FACTOR
        slot = np.int64((value * _SPREAD) >> np.uint64(shift))
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = (value & ~_TERM_MASK) | np.uint64(term + 1)


@compiled("void(uint8[::1], int64[::1], uint64[::1])")
def _hash_strings(buffer, offsets, keys):  # type: ignore[no-untyped-def]
    for index in range(keys.size):
        value = _START
        for offset in range(offsets[index], offsets[index + 1]):
            value = (value ^ np.uint64(buffer[offset])) * _FACTOR
        keys[index] = value
