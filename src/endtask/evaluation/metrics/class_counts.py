"""Counts of classes for many runs and weightings of the rows by one matrix product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import Values

Labels = NDArray[np.int64]

_LARGEST_CHUNK = 2**21  # numbers held at a time: the weights of the rows and the counts that they give


class ClassCounts:
    """How often each run names each class, and how often rightly, when rows weigh more or less.

    >>> counts = ClassCounts(np.array([[0, 1, 1]]), np.array([0, 1, 0]))
    >>> right = counts.weighted(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))[1, 0]
    >>> right.sum(axis=0).tolist()
    [2.0, 1.0]
    """

    def __init__(self, predicted: Labels, truth: Labels) -> None:
        everything = np.concatenate([truth[None], predicted])  # truth counts as run 0, which is always right
        self.names, numbers = np.unique(everything, return_inverse=True)
        numbers = numbers.reshape(everything.shape)
        self.shape = (len(numbers), 2, len(self.names))  # runs + 1, (right, named), classes that occur
        self._numbers_held = int(np.prod(self.shape)) + len(truth)  # for each weighting of the rows
        self._matrix = _one_hot(numbers, self.shape)

    def weighted(self, weights: NDArray[Any]) -> NDArray[np.float32]:
        """Return counts (runs + 1, 2, classes, draws) for weights (rows, draws)."""
        # Counts of rows are whole numbers: float32 holds them exactly below 2**24 and halves the traffic.
        counts: NDArray[np.float32] = self._matrix @ weights.astype(np.float32, copy=False)
        return counts.reshape(*self.shape, weights.shape[1])

    def f1(self, number: int, right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
        """Return the F1 (runs, draws) of a single class; 0 where it occurs nowhere."""
        (indices,) = np.nonzero(self.names == number)
        both = (named[:, indices] + true[indices]).sum(axis=1, dtype=np.float64)
        twice = 2 * right[:, indices].sum(axis=1, dtype=np.float64)
        scores: Values = np.divide(twice, both, out=np.zeros_like(both), where=both > 0)
        return scores

    @property
    def draws_at_once(self) -> int:
        """How many weightings of the rows to hold in memory together."""
        return max(1, _LARGEST_CHUNK // self._numbers_held)


class ClassScores:
    """A metric as a function of counts: right and named (runs, classes, draws), true (classes, draws)."""

    def __init__(
        self, counts: ClassCounts, score: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Values]
    ) -> None:
        self._score = score
        self.draws_at_once, self.weighted = counts.draws_at_once, counts.weighted

    def scores(self, counts: NDArray[Any]) -> Values:
        """Return scores (runs, draws) of counts (runs + 1, 2, classes, draws)."""
        return self._score(counts[1:, 0], counts[1:, 1], counts[0, 0])


def share_right(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """Return the share of rows that are right, which is micro-F1 too where each row has one class."""
    shares: Values = right.sum(axis=1, dtype=np.float64) / true.sum(axis=0, dtype=np.float64)
    return shares


def _one_hot(numbers: Labels, shape: tuple[int, int, int]) -> Any:
    """Return the sparse matrix (runs * 2 * classes, rows) whose product with weights of rows gives the counts."""
    from scipy.sparse import csr_matrix

    runs, two, classes = shape
    named = (two * np.arange(runs)[:, None] + 1) * classes + numbers
    row = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    right = numbers == numbers[0]
    cells = np.concatenate([named.ravel(), named[right] - classes])
    columns = np.concatenate([row.ravel(), row[right]])
    ones = np.ones(len(cells), dtype=np.float32)
    return csr_matrix((ones, (cells, columns)), shape=(int(np.prod(shape)), numbers.shape[1]))
