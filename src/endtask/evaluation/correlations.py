"""Scores of predicted numbers: correlations of values and of ranks, and how much of the spread is explained."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.resampling_sums import RowSums, Values, ratio
from endtask.task.targets import Answers

_LARGEST_CHUNK = 2**21


def number_scores(predicted: Answers, truth: Answers, metric: str) -> RowSums | RankScores:
    """What scores the numbers of runs (runs, rows) under many weightings of the rows."""
    if metric in ("spearman", "pearson_spearman"):
        return RankScores(predicted, truth, with_values=metric == "pearson_spearman")
    # Far from 0 the sums of squares would lose the digits that count.
    centre = truth.mean()
    p, t = predicted - centre, np.broadcast_to(truth - centre, predicted.shape)
    statistics = np.stack([np.ones_like(p), p, t, p * p, t * t, p * t], axis=-1)
    return RowSums(statistics, {"pearson": _pearson, "r2": _explained, "rmse": _error}[metric])


class RankScores:
    """Spearman's correlation, or its mean with Pearson's; ranks change with the weights of the rows.

    The order of the values does not, so the ranks of all weightings are running sums over one sorting.
    """

    def __init__(self, predicted: Answers, truth: Answers, *, with_values: bool) -> None:
        self._predicted = [_Sorted(run) for run in predicted]
        self._truth = _Sorted(truth)
        self._values = number_scores(predicted, truth, "pearson") if with_values else None
        self.draws_at_once = max(1, _LARGEST_CHUNK // (8 * len(truth)))

    def weighted(self, weights: NDArray[Any]) -> Values:
        """The weights themselves: no sum over rows is enough."""
        return weights.astype(np.float64, copy=False)

    def scores(self, counts: Values) -> Values:
        """Scores (runs, draws) of weights (rows, draws)."""
        true = self._truth.ranks(counts)
        ranked = np.stack([_correlation(run.ranks(counts), true, counts) for run in self._predicted])
        if self._values is None:
            return ranked
        return 0.5 * (ranked + self._values.scores(self._values.weighted(counts)))


class _Sorted:
    """Numbers whose ranks can be had for any weights; equal ones share the mean of their ranks."""

    def __init__(self, numbers: Answers) -> None:
        _, self._group, counts = np.unique(numbers, return_inverse=True, return_counts=True)  # one group of equal ones
        self._order, self._starts = np.argsort(self._group, kind="stable"), np.cumsum(counts) - counts

    def ranks(self, weights: Values) -> Values:
        """Mid-ranks (rows, draws), half a weight too low throughout, which no correlation sees."""
        sums = np.add.reduceat(weights[self._order], self._starts, axis=0)  # (groups, draws)
        ranks: Values = (np.cumsum(sums, axis=0) - 0.5 * sums)[self._group]
        return ranks


def _correlation(one: Values, other: Values, weights: Values) -> Values:
    """The weighted correlation of each column: (rows, draws) thrice -> (draws,)."""
    total = weights.sum(axis=0)
    one = one - ratio((weights * one).sum(axis=0), total)
    other = other - ratio((weights * other).sum(axis=0), total)
    spread = np.sqrt((weights * one * one).sum(axis=0) * (weights * other * other).sum(axis=0))
    return ratio((weights * one * other).sum(axis=0), spread)


def _pearson(sums: Values) -> Values:
    """0 where one side is all alike: nothing is known about the other then."""
    n, p, t, pp, tt, pt = np.moveaxis(sums, 1, 0)
    left, right = n * pp - p * p, n * tt - t * t
    known = (left > _noise(n * pp)) & (right > _noise(n * tt))
    return ratio(np.where(known, n * pt - p * t, 0.0), np.sqrt(np.where(known, left * right, 1.0)))


def _explained(sums: Values) -> Values:
    """1 - squared error / spread of the truth (R2), below 0 if the mean were better; 0 where the truth is all alike."""
    n, _, t, pp, tt, pt = np.moveaxis(sums, 1, 0)
    spread = tt - ratio(t * t, n)
    known = spread > _noise(tt)
    return np.where(known, 1.0 - ratio(pp - 2 * pt + tt, np.where(known, spread, 1.0)), 0.0)


def _error(sums: Values) -> Values:
    """The root of the mean squared error."""
    n, _, _, pp, tt, pt = np.moveaxis(sums, 1, 0)
    return np.sqrt(np.maximum(ratio(pp - 2 * pt + tt, n), 0.0))


def _noise(size: Values) -> Values:
    """What rounding alone may leave of a difference of numbers of this size."""
    return 1e-13 * np.abs(size)
