"""Scores that follow from sums over rows, for many runs and weightings of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import Values

_LARGEST_CHUNK = 2**21  # numbers held at a time


class RowSums:
    """Statistics of each run and row (runs, rows, statistics); a score is a function of their weighted sums.

    >>> hits = RowSums(np.array([[[1.0, 1.0], [0.0, 1.0]]]), lambda sums: sums[:, 0] / sums[:, 1])
    >>> hits.scores(hits.weighted(np.array([[1.0, 3.0], [1.0, 1.0]])))
    array([[0.5 , 0.75]])
    """

    def __init__(self, statistics: Values, score: Callable[[Values], Values]) -> None:
        self._runs, self._rows, self._statistics = (int(size) for size in statistics.shape)
        self._score = score
        self._matrix = np.ascontiguousarray(statistics.transpose(0, 2, 1)).reshape(-1, self._rows)

    @property
    def draws_at_once(self) -> int:
        """How many weightings of the rows to hold in memory together."""
        return max(1, _LARGEST_CHUNK // (len(self._matrix) + self._rows))

    def weighted(self, weights: NDArray[Any]) -> Values:
        """Return sums (runs, statistics, draws) for weights (rows, draws)."""
        sums: Values = self._matrix @ weights.astype(np.float64, copy=False)
        return sums.reshape(self._runs, self._statistics, weights.shape[1])

    def scores(self, counts: Values) -> Values:
        """Return scores (runs, draws) of sums (runs, statistics, draws)."""
        return self._score(counts)


def ratio(above: Values, below: Values) -> Values:
    """Return a quotient, and 0 where the denominator is 0."""
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def first_by_second(sums: Values) -> Values:
    """Return the first sum divided by the second."""
    return ratio(sums[:, 0], sums[:, 1])


def with_ones(right: NDArray[Any]) -> Values:
    """Return (runs, rows) with a 1 for each row behind it: (runs, rows, 2)."""
    return np.stack([right, np.ones_like(right)], axis=-1).astype(np.float64)
