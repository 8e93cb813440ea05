"""Scores of classes for many runs and weightings of the rows: counts per class by one product, no call per score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError, did_you_mean

Labels = NDArray[np.int64]
Values = NDArray[np.float64]

_LARGEST_CHUNK = 2**21  # numbers held at a time: the weights of the rows and the counts that they give


class ClassCounts:
    """How often each run names each class, and how often rightly, when rows weigh more or less.

    >>> counts = ClassCounts(np.array([[0, 1, 1]]), np.array([0, 1, 0]))
    >>> counts.scores(counts.weighted(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])), "accuracy")
    array([[0.66666667, 0.5       ]])
    """

    def __init__(self, predicted: Labels, truth: Labels) -> None:
        everything = np.concatenate([truth[None], predicted])  # truth counts as run 0, which is always right
        self.names, numbers = np.unique(everything, return_inverse=True)
        numbers = numbers.reshape(everything.shape)
        self.shape = (len(numbers), 2, len(self.names))  # runs + 1, (right, named), classes that occur
        self._numbers_held = int(np.prod(self.shape)) + len(truth)  # for each weighting of the rows
        self._matrix = _one_hot(numbers, self.shape)

    def weighted(self, weights: NDArray[Any]) -> NDArray[np.float32]:
        """Counts (runs + 1, 2, classes, draws) for weights (rows, draws)."""
        # Counts of rows are whole numbers: float32 holds them exactly below 2**24 and halves the traffic.
        counts: NDArray[np.float32] = self._matrix @ weights.astype(np.float32, copy=False)
        return counts.reshape(*self.shape, weights.shape[1])

    def scores(self, counts: NDArray[np.float32], metric: str) -> Values:
        """Scores (runs, draws) of counts (runs + 1, 2, classes, draws)."""
        return count_metric(metric)(counts[1:, 0], counts[1:, 1], counts[0, 0])

    def f1(self, counts: NDArray[np.float32], name: int) -> Values:
        """The F1 (runs, draws) of a single class; 0 where it occurs nowhere."""
        right, named, true = counts[1:, 0], counts[1:, 1], counts[0, 0]
        (places,) = np.nonzero(self.names == name)
        both = (named[:, places] + true[places]).sum(axis=1, dtype=np.float64)
        twice = 2 * right[:, places].sum(axis=1, dtype=np.float64)
        scores: Values = np.divide(twice, both, out=np.zeros_like(both), where=both > 0)
        return scores

    @property
    def draws_at_once(self) -> int:
        """How many weightings of the rows are worth holding in memory together."""
        return max(1, _LARGEST_CHUNK // self._numbers_held)


def count_metric(name: str) -> Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Values]:
    """The metric as a function of counts: right and named (runs, classes, draws), true (classes, draws)."""
    if name not in COUNT_METRICS:
        raise InputError(f"unknown metric {name!r}", hint=did_you_mean(name, COUNT_METRICS))
    return COUNT_METRICS[name]


def _one_hot(numbers: Labels, shape: tuple[int, int, int]) -> Any:
    """The sparse matrix (runs * 2 * classes, rows) whose product with weights of rows gives the counts."""
    from scipy.sparse import csr_matrix

    runs, two, classes = shape
    named = (two * np.arange(runs)[:, None] + 1) * classes + numbers
    row = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    right = numbers == numbers[0]
    places = np.concatenate([named.ravel(), named[right] - classes])
    columns = np.concatenate([row.ravel(), row[right]])
    ones = np.ones(len(places), dtype=np.float32)
    return csr_matrix((ones, (places, columns)), shape=(int(np.prod(shape)), numbers.shape[1]))


def _accuracy(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """The share of rows that are right, which is micro-F1 too where each row has one class."""
    shares: Values = right.sum(axis=1, dtype=np.float64) / true.sum(axis=0, dtype=np.float64)
    return shares


def _macro_f1(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """The mean F1 of the classes that occur in truth or prediction."""
    both = (named + true).astype(np.float64)
    occurs = both > 0
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=occurs)
    means: Values = f1.sum(axis=1) / occurs.sum(axis=1)
    return means


def _matthews(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """Matthews' correlation for any number of classes (Gorodkin, 2004); 0 where all of one side is one class."""
    right, named, true = (counts.astype(np.float64) for counts in (right, named, true))
    rows = true.sum(axis=0)
    above = right.sum(axis=1) * rows - (named * true).sum(axis=1)
    spread = (rows**2 - (named**2).sum(axis=1)) * (rows**2 - (true**2).sum(axis=0))
    scores: Values = np.divide(above, np.sqrt(spread), out=np.zeros_like(above), where=spread > 0)
    return scores


COUNT_METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Values]] = {
    "accuracy": _accuracy,
    "micro_f1": _accuracy,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
}
