"""A growing set of 64-bit keys for whole arrays of them, compiled: which passages were seen before."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from endtask.retrieval.compiled import compiled
from endtask.retrieval.words import HASH_FACTOR

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
