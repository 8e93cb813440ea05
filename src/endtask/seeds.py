"""Random streams that are pure functions of a seed and a place in the work, so that nothing needs replay."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for one place in the work.

    >>> derive(0, "mask", 7) == derive(0, "mask", 7) != derive(0, "mask", 8)
    True
    """
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy random generator for one place in the work."""
    return np.random.Generator(np.random.PCG64(derive(seed, *path)))


def spread(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit spread over all bits, as in the last steps of SplitMix64."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def uniform(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The same numbers between 0 and 1, both excluded."""
    found = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.minimum(found, np.nextafter(1.0, 0.0))  # the highest would be rounded up to 1
