"""Random streams that are pure functions of a seed and a name, so that a resumed run replays nothing."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def derive(seed: int, *path: str | int) -> int:
    """Return a 63-bit seed for a random stream, named by `path`.

    >>> derive(0, "mask", 7) == derive(0, "mask", 7) != derive(0, "mask", 8)
    True
    """
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Return a NumPy random generator for a random stream, named by `path`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *path)))


def spread(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix every bit of the keys into all bits, as in the last steps of SplitMix64."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def uniform(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map 64-bit numbers to floats between 0 and 1, both excluded."""
    floats = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.minimum(floats, np.nextafter(1.0, 0.0))  # the highest would be rounded up to 1
