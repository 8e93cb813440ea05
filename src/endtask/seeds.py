"""Random streams that are pure functions of a seed and a place in the work, so that nothing needs replay."""

from __future__ import annotations

import hashlib

import numpy as np


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
