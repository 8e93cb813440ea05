"""The words of retrieval: runs of Unicode letters, digits or marks, lower-cased, and single CJK ideographs.

Stop words and short words count. The kernels use the tables of this module, so they split and fold words alike.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

OTHER, LETTER, IDEOGRAPH, BLANK = range(4)
"""Classes of characters; digits and marks are letters."""

CODE_POINTS = 0x110000
CODE_POINTS_WITH_CASE = 0x20000
"""Lower-casing does not change larger code points."""

HASH_START = 0xCBF29CE484222325
HASH_FACTOR = 0x100000001B3

_ASSIGNED = (range(0x40000), range(0xE0000, 0xE1000))  # the planes between and above hold no letters
_IDEOGRAPHS = (
    (0x3007, 0x3007),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2FFFF),
    (0x30000, 0x3FFFF),
)


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order.

    >>> words_of("The << X-ray >> of [[ Zürich ]], 東京")
    ['the', 'x', 'ray', 'of', 'zürich', '東', '京']
    """
    return fold(text).translate(_GAPS).split()


def fold(text: str) -> str:
    """Lower-case each letter by itself: a final Greek sigma becomes an ordinary sigma."""
    return text.lower().replace("ς", "σ")


def word_hash(word: str) -> int:
    """Return a 64-bit hash over the code points of a word (FNV-1a).

    >>> hex(word_hash("a"))
    '0xaf63dc4c8601ec8c'
    """
    value = HASH_START
    for character in word:
        value = ((value ^ ord(character)) * HASH_FACTOR) % (1 << 64)
    return value


@cache
def character_classes() -> NDArray[np.uint8]:
    """Return the class of every code point."""
    classes = np.full(CODE_POINTS, OTHER, dtype=np.uint8)
    for plane in _ASSIGNED:
        categories = "".join(unicodedata.category(chr(point))[0] for point in plane)
        letters = np.frombuffer(categories.translate({ord(sign): "L" for sign in "NM"}).encode(), dtype=np.uint8)
        classes[plane.start : plane.stop][letters == ord("L")] = LETTER
    for first, last in _IDEOGRAPHS:
        block = classes[first : last + 1]
        block[block == LETTER] = IDEOGRAPH
    classes[[point for point in range(0x3001) if chr(point).isspace()]] = BLANK
    return classes


@cache
def lower_cases() -> NDArray[np.uint32]:
    """Return the first character of the lower case of every code point below `CODE_POINTS_WITH_CASE`."""
    lowered = (fold(chr(point))[0] for point in range(CODE_POINTS_WITH_CASE))
    return np.fromiter(map(ord, lowered), dtype=np.uint32, count=CODE_POINTS_WITH_CASE)


class _Gaps(dict[int, str]):
    """A table for `str.translate`, filled on demand: blanks replace other characters and surround ideographs.

    It is several times as fast as a regular expression with the hundreds of ranges of letters.
    """

    def __missing__(self, point: int) -> str:
        kind = character_classes()[point]
        character = chr(point)
        self[point] = character if kind == LETTER else f" {character} " if kind == IDEOGRAPH else " "
        return self[point]


_GAPS = _Gaps()
