"""Scores of many runs under many weightings of the rows: counts per class by one product, no call per score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from endtask.errors import InputError, did_you_mean

Labels = NDArray[np.int64]
Values = NDArray[np.float64]

_LARGEST_CHUNK = 2**21  # numbers held at a time: the weights of the rows and the counts that they give


def checked_truth(truth: ArrayLike) -> Labels:
    """The right class numbers as an array of one axis with at least one row."""
    numbers = np.asarray(truth, dtype=np.int64)
    if numbers.ndim != 1 or not len(numbers):
        raise ValueError(f"truth of shape {numbers.shape} is not a list of class numbers")
    return numbers


def runs_by_rows(predicted: ArrayLike, truth: Labels) -> Labels:
    """Predicted class numbers as runs x rows; a single run may be given flat, groups of runs with three axes."""
    table = np.asarray(predicted)
    if table.ndim not in (1, 2, 3) or table.shape[-1] != len(truth) or not table.size:
        raise ValueError(f"predictions of shape {table.shape} do not fit {len(truth)} rows of truth")
    return table.reshape(-1, len(truth)).astype(np.int64, copy=False)


def score_runs(predicted: ArrayLike, truth: ArrayLike, metric: str) -> Values:
    """The score of each run.

    >>> score_runs([[0, 1, 1], [0, 0, 0]], [0, 1, 0], "accuracy")
    array([0.66666667, 0.66666667])
    """
    right = checked_truth(truth)
    counts = ClassCounts(runs_by_rows(predicted, right), right)
    scores: Values = counts.scores(counts.weighted(np.ones((len(right), 1), dtype=np.float32)), metric)[:, 0]
    return scores


class ClassCounts:
    """How often each run names each class, and how often rightly, when rows weigh more or less.

    >>> counts = ClassCounts(np.array([[0, 1, 1]]), np.array([0, 1, 0]))
    >>> counts.scores(counts.weighted(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])), "accuracy")
    array([[0.66666667, 0.5       ]])
    """

    def __init__(self, predicted: Labels, truth: Labels) -> None:
        everything = np.concatenate([truth[None], predicted])  # truth counts as run 0, which is always right
        names, numbers = np.unique(everything, return_inverse=True)
        numbers = numbers.reshape(everything.shape)
        self.shape = (len(numbers), 2, len(names))  # runs + 1, (right, named), classes that occur
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


COUNT_METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Values]] = {
    "accuracy": _accuracy,
    "micro_f1": _accuracy,
    "macro_f1": _macro_f1,
}
