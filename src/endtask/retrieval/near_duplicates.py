"""Near-duplicates: of passages that share most of their wording, the first in the corpus is kept.

Alike means a high Jaccard index of the sets of 5 consecutive words, estimated by MinHash with one permutation
(Li, Owen and Zhang, 2012): the hashes of a passage's shingles fall into 128 bins and each bin keeps its lowest.
Passages that agree in one of several bands of bins are compared; for the bands alone, empty bins borrow from others
(Shrivastava, 2017).
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.compiled import compiled
from endtask.retrieval.contamination_index import run_key

SHINGLE = 5
BINS = 128
SIGNATURE = BINS // 2
"""32-bit numbers a signature takes: two bins in each."""
FEWEST_WORDS = 20
"""Shorter passages are alike only if their words are equal: one other word would change a third of their shingles, and
what headings and list items share is their form."""

_MOST_BANDS = 16
_MISSED = 0.02
_MOST_HOLDERS = 64
_FULLEST = 0.7
_EMPTY = 0
_NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_BIN_SHIFT = np.uint64(64 - 7)  # the top bits choose one of 128


class NearDuplicates:
    """Told signatures in corpus order, finds those alike an earlier passage that was kept itself.

    Memory: 128 bytes and, for each band, 11 to 23 bytes per kept passage; at a threshold of 0.8 (13 bands) 280 to 420
    in all. A band that 64 kept passages share is boilerplate, and further ones are not entered there: so the time
    per passage is bounded.

    >>> rows = np.zeros((2, SIGNATURE), dtype=np.uint32)
    >>> words = np.arange(30, dtype=np.uint64)
    >>> sketch(words, 30, rows[0]), sketch(words, 30, rows[1])
    (None, None)
    >>> NearDuplicates(0.8).add(rows)
    array([False,  True])
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._rows, self._bands = banding(threshold)
        self._stored = np.empty((1 << 10, BINS), dtype=np.uint8)
        self._count = 0
        self._slots = np.zeros(1 << 10, dtype=np.uint64)

    def add(self, signatures: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which of these passages are near-duplicates; how they are dealt into calls does not matter."""
        bins = np.ascontiguousarray(signatures).view(np.uint16)
        self._grow(len(bins))
        is_near = np.zeros(len(bins), dtype=np.bool_)
        self._count = _collapse(
            bins, self._threshold, self._rows, self._bands, self._stored, self._count, self._slots, is_near
        )
        return is_near

    def _grow(self, more: int) -> None:
        wanted = self._count + more
        if wanted > len(self._stored):
            stored = np.empty((max(wanted, 2 * len(self._stored)), BINS), dtype=np.uint8)
            stored[: self._count] = self._stored[: self._count]
            self._stored = stored
        size = len(self._slots)
        while wanted * self._bands > _FULLEST * size:
            size *= 2
        if size > len(self._slots):
            slots = np.zeros(size, dtype=np.uint64)
            _move(self._slots, slots)
            self._slots = slots


def banding(threshold: float) -> tuple[int, int]:
    """Bins per band, and bands, so that of pairs just alike enough one in 50 has no band in common.

    Longer bands bring fewer pairs to compare, but more of them are needed, and each takes memory.

    >>> banding(0.5), banding(0.8), banding(1.0)
    ((2, 14), (6, 13), (128, 1))
    """
    fitting = [
        (rows, bands)
        for rows in range(3, BINS + 1)
        if (bands := _bands_needed(threshold, rows)) <= min(_MOST_BANDS, BINS // rows)
    ]
    return max(fitting, default=(2, min(_bands_needed(threshold, 2), BINS // 2)))


def _bands_needed(threshold: float, rows: int) -> int:
    equal = threshold**rows
    return 1 if equal == 1 else math.ceil(math.log(_MISSED) / math.log1p(-equal)) if equal > 1e-9 else BINS


@numba.njit
def sketch(hashes, count, signature):  # type: ignore[no-untyped-def]
    """Write the signature of a passage of `count` words; without any word it is all zero."""
    bins = signature.view(np.uint16)
    if count < FEWEST_WORDS:
        key = run_key(hashes, 0, count)
        for index in range(BINS):
            key = (key ^ (key >> _HALF)) * _SPREAD
            bins[index] = _EMPTY if count == 0 else _value(key >> _HALF)
        return
    lowest = np.full(BINS, _NOTHING)
    for start in range(count - SHINGLE + 1):
        key = run_key(hashes, start, SHINGLE)
        index = key >> _BIN_SHIFT
        lowest[index] = min(lowest[index], key)
    for index in range(BINS):
        bins[index] = _EMPTY if lowest[index] == _NOTHING else _value(lowest[index])


@numba.njit
def _value(key):  # type: ignore[no-untyped-def]
    """16 bits of a key, from those that did not decide whether it is the lowest; never `_EMPTY`."""
    return np.uint64(1) + (key & _LOW_HALF) % np.uint64(0xFFFF)


@compiled("int64(uint16[:, ::1], float64, int64, int64, uint8[:, ::1], int64, uint64[::1], boolean[::1])")
def _collapse(signatures, threshold, rows, bands, stored, count, slots, is_near):  # type: ignore[no-untyped-def]
    """Fill `is_near` and enter the other passages; returns how many are kept by then."""
    borrowed = np.empty(BINS, dtype=np.uint16)
    prints = np.empty(bands, dtype=np.uint64)
    for passage in range(len(signatures)):
        if not _borrow(signatures[passage], borrowed, stored[count]):
            continue
        for band in range(bands):
            prints[band] = _fingerprint(borrowed, band * rows, rows)
            if _has_alike(prints[band], slots, stored, count, threshold):
                is_near[passage] = True
                break
        if not is_near[passage]:
            for band in range(bands):
                _enter(prints[band], count, slots)
            count += 1
    return count


@numba.njit
def _borrow(signature, borrowed, short):  # type: ignore[no-untyped-def]
    """Fill the empty bins, each from the first full one in an order of its own; False if all are empty.

    `short` receives the bins as they are, a byte each: of different shingles one pair in 255 is taken for equal.
    """
    filled = 0
    for index in range(BINS):
        value = signature[index]
        short[index] = _EMPTY if value == _EMPTY else 1 + value % 255
        filled += value != _EMPTY
    if filled == 0:
        return False
    for index in range(BINS):
        donor = np.uint64(index)
        step = np.uint64(index)
        while signature[donor] == _EMPTY:
            step += np.uint64(BINS)
            donor = (step * _SPREAD) >> _BIN_SHIFT
        borrowed[index] = signature[donor]
    return True


@numba.njit
def _fingerprint(bins, first, rows):  # type: ignore[no-untyped-def]
    """32 bits for the values of one band and for which band it is; the high ones choose the slot."""
    value = np.uint64(first + 1)
    for index in range(first, first + rows):
        value = (value ^ np.uint64(bins[index])) * _SPREAD
        value ^= value >> _HALF
    return (value * _SPREAD) >> _HALF


@numba.njit
def _first_slot(fingerprint, slots):  # type: ignore[no-untyped-def]
    """Slots are a power of two and rise with the fingerprint."""
    return np.int64((fingerprint * np.uint64(slots.size)) >> _HALF)


@numba.njit
def _has_alike(fingerprint, slots, stored, count, threshold):  # type: ignore[no-untyped-def]
    """Whether a kept passage with this band is alike the one that stands at `stored[count]`."""
    slot = _first_slot(fingerprint, slots)
    while slots[slot] != 0:
        if slots[slot] >> _HALF == fingerprint:
            other = np.int64(slots[slot] & _LOW_HALF) - 1
            if _alike(stored[other], stored[count], threshold):
                return True
        slot = (slot + 1) & (slots.size - 1)
    return False


@numba.njit
def _alike(one, other, threshold):  # type: ignore[no-untyped-def]
    """The estimate: of the bins that one of the two fills, the share in which they agree."""
    either = equal = 0
    for index in range(BINS):
        either += one[index] | other[index] != _EMPTY
        equal += one[index] == other[index] and one[index] != _EMPTY
    return equal >= threshold * either


@numba.njit
def _enter(fingerprint, number, slots):  # type: ignore[no-untyped-def]
    """Enter a kept passage under a band, unless enough others stand there."""
    slot = _first_slot(fingerprint, slots)
    holders = 0
    while slots[slot] != 0:
        holders += slots[slot] >> _HALF == fingerprint
        slot = (slot + 1) & (slots.size - 1)
    if holders < _MOST_HOLDERS:
        slots[slot] = fingerprint << _HALF | np.uint64(number + 1)


@compiled("void(uint64[::1], uint64[::1])")
def _move(slots, larger):  # type: ignore[no-untyped-def]
    """Enter all that stands in a table into a larger one."""
    for entry in slots:
        if entry != 0:
            slot = _first_slot(entry >> _HALF, larger)
            while larger[slot] != 0:
                slot = (slot + 1) & (larger.size - 1)
            larger[slot] = entry
