"""A set of 64-bit keys at 11 to 22 bytes each: exact de-duplication without holding the texts in memory."""

from __future__ import annotations

import hashlib
from array import array

_FIRST_SLOTS = 1 << 12
_FULLEST = 0.75
_BLANKS = bytes.maketrans(b"\t\n\v\f\r\x1c\x1d\x1e\x1f", b" " * 9)


def key_of(text: str) -> int:
    """Return a 64-bit hash of a text.

    Two of n different texts collide with a probability of about n**2 / 2**65: one in 3,700 for a hundred million
    texts. The later text would then be dropped as a duplicate.
    """
    return _hash(text.encode())


def key_of_words(text: str) -> int:
    r"""Return `key_of` the text with every run of white space replaced by one blank, and none at the ends.

    >>> key_of_words("one  two\n") == key_of_words("one two")
    True
    """
    if not text.isascii():
        return _hash(" ".join(text.split()).encode())
    # The same result for ASCII, in a third of the time.
    content = text.encode().translate(_BLANKS).strip()
    while b"  " in content:
        content = content.replace(b"  ", b" ")
    return _hash(content)


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


class Seen:
    """A growing set of keys: a hash table with linear probing, at most three quarters full.

    Keys must be uniformly distributed, as those of `key_of` are.

    >>> seen = Seen()
    >>> seen.add(7), seen.add(7), len(seen)
    (True, False, 1)
    """

    def __init__(self) -> None:
        self._slots = _empty_slots(_FIRST_SLOTS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: int) -> bool:
        """Add a key; returns whether it was new."""
        key = key or 1  # 0 marks an empty slot
        slots = self._slots
        mask = len(slots) - 1
        slot = key & mask
        while found := slots[slot]:
            if found == key:
                return False
            slot = (slot + 1) & mask
        slots[slot] = key
        self._count += 1
        if self._count > _FULLEST * len(slots):
            self._grow()
        return True

    def _grow(self) -> None:
        slots = _empty_slots(2 * len(self._slots))
        mask = len(slots) - 1
        for key in self._slots:
            if key:
                slot = key & mask
                while slots[slot]:
                    slot = (slot + 1) & mask
                slots[slot] = key
        self._slots = slots


def _empty_slots(count: int) -> array[int]:
    return array("Q", bytes(8)) * count
