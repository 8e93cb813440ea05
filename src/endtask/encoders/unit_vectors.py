"""Vectors of length 1, whose products are cosines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def unit_vectors(vectors: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return a vector or the rows of a matrix scaled to length 1, those of length 0 as they are; `out` as in NumPy.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    units: NDArray[Any] = np.divide(vectors, np.where(lengths > 0, lengths, 1), out=out)
    return units
