"""Whether one arm is surprised less than another: a permutation test over groups of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.significance import numbered_groups
from endtask.seeds import generator

_AT_ONCE = 500


def surprise_permutation(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: NDArray[np.int64],
    *,
    permutations: int = 10_000,
    seed: int = 0,
) -> float:
    """Two-sided p-value of the difference of two arms' cross-entropy, which may be swapped in each group of rows.

    Both are sums over a row's answers, means over the arm's runs. As both were asked the same, the logarithms of their
    perplexities differ by the mean of the rows' differences. The observed labelling counts as one permutation.

    >>> surprise_permutation(np.ones(40), np.zeros(40), np.arange(40)) < 0.001
    True
    >>> surprise_permutation(np.ones(40), np.zeros(40), np.zeros(40, dtype=np.int64))
    1.0
    """
    differences = np.bincount(numbered_groups(groups, len(first)), weights=first - second)
    observed = abs(differences.sum()) * (1 - 1e-12)
    random, extreme = generator(seed, "surprise"), 0
    for start in range(0, permutations, _AT_ONCE):
        signs = random.integers(0, 2, size=(min(_AT_ONCE, permutations - start), len(differences)), dtype=np.int8)
        extreme += int((np.abs((2.0 * signs - 1) @ differences) >= observed).sum())
    return (extreme + 1) / (permutations + 1)
