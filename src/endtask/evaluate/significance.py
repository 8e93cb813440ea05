"""Is a difference more than chance? A paired permutation test over the rows of a test split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.seeds import generator

_CHUNK = 1000


def paired_permutation(
    first: NDArray[np.float64], second: NDArray[np.float64], *, permutations: int = 10_000, seed: int = 0
) -> float:
    """Two-sided p-value of the mean difference of paired values when their signs are exchangeable.

    The observed labelling counts as one of the permutations, so p is never 0.

    >>> paired_permutation(np.ones(50), np.ones(50))
    1.0
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    # Sums in another order may differ in their last bits; ties with the observed one must still count as ties.
    observed = abs(difference.sum()) - 1e-12 * np.abs(difference).sum()
    random = generator(seed, "permutation")
    extreme = 0
    for start in range(0, permutations, _CHUNK):
        count = min(_CHUNK, permutations - start)
        signs = random.integers(0, 2, size=(count, len(difference)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ difference) >= observed).sum())
    return (extreme + 1) / (permutations + 1)
