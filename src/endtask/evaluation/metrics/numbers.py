"""Metrics of predicted numbers: correlations of values and of ranks, explained variance and error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import (
    LARGEST_CHUNK,
    Answers,
    Counted,
    Form,
    Metric,
    RowSums,
    Values,
    metrics,
    ratio,
)


class _OfValues(Metric):
    forms: ClassVar[tuple[Form, ...]] = ("numbers",)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return value_sums(predicted, truth, self.score)

    @staticmethod
    def score(sums: Values) -> Values:
        """Return the score from sums of 1, p, t, p p, t t and p t of predictions and truth."""
        raise NotImplementedError


@metrics.register("pearson")
class Pearson(_OfValues):
    """Pearson's correlation; 0 where one side is constant."""

    @staticmethod
    def score(sums: Values) -> Values:
        n, p, t, pp, tt, pt = np.moveaxis(sums, 1, 0)
        left, right = n * pp - p * p, n * tt - t * t
        known = (left > _noise(n * pp)) & (right > _noise(n * tt))
        return ratio(np.where(known, n * pt - p * t, 0.0), np.sqrt(np.where(known, left * right, 1.0)))


@metrics.register("r2")
class R2(_OfValues):
    """1 - squared error / variance of the truth, below 0 if the mean were better; 0 where the truth is constant."""

    @staticmethod
    def score(sums: Values) -> Values:
        n, _, t, pp, tt, pt = np.moveaxis(sums, 1, 0)
        spread = tt - ratio(t * t, n)
        known = spread > _noise(tt)
        return np.where(known, 1.0 - ratio(pp - 2 * pt + tt, np.where(known, spread, 1.0)), 0.0)


@metrics.register("rmse")
class Rmse(_OfValues):
    """The root of the mean squared error."""

    higher_is_better = False

    @staticmethod
    def score(sums: Values) -> Values:
        n, _, _, pp, tt, pt = np.moveaxis(sums, 1, 0)
        return np.sqrt(np.maximum(ratio(pp - 2 * pt + tt, n), 0.0))


@metrics.register("spearman")
class Spearman(Metric):
    """Spearman's rank correlation."""

    forms: ClassVar[tuple[Form, ...]] = ("numbers",)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return RankScores(predicted, truth, with_values=False)


@metrics.register("pearson_spearman")
class PearsonSpearman(Metric):
    """The mean of Pearson's and Spearman's correlation, as GLUE reports STS-B."""

    forms: ClassVar[tuple[Form, ...]] = ("numbers",)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return RankScores(predicted, truth, with_values=True)


def value_sums(predicted: Answers, truth: Answers, score: Callable[[Values], Values]) -> RowSums:
    """Return the numbers of runs (runs, rows), ready to be scored under many weightings of the rows."""
    # Without centring, sums of squares of numbers far from 0 lose their significant digits.
    centre = truth.mean()
    p, t = predicted - centre, np.broadcast_to(truth - centre, predicted.shape)
    return RowSums.of(np.stack([np.ones_like(p), p, t, p * p, t * t, p * t], axis=-1), score)


class RankScores:
    """Spearman's correlation, or its mean with Pearson's.

    Ranks change with the weights of the rows, the order does not: the ranks are running sums over one sorting.
    """

    def __init__(self, predicted: Answers, truth: Answers, *, with_values: bool) -> None:
        self._predicted = [_Sorted(run) for run in predicted]
        self._truth = _Sorted(truth)
        self._values = value_sums(predicted, truth, Pearson.score) if with_values else None
        self.draws_at_once = max(1, LARGEST_CHUNK // (8 * len(truth)))

    def weighted(self, weights: NDArray[Any]) -> Values:
        """Return the weights themselves: no sum over rows is enough."""
        return weights.astype(np.float64, copy=False)

    def scores(self, counts: Values) -> Values:
        """Return scores (runs, draws) of weights (rows, draws)."""
        true = self._truth.ranks(counts)
        ranked = np.stack([_correlation(run.ranks(counts), true, counts) for run in self._predicted])
        if self._values is None:
            return ranked
        return 0.5 * (ranked + self._values.scores(self._values.weighted(counts)))


class _Sorted:
    """Sorted numbers, for their ranks under any weights; equal numbers share the mean of their ranks."""

    def __init__(self, numbers: Answers) -> None:
        _, self._group, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        self._order, self._starts = np.argsort(self._group, kind="stable"), np.cumsum(counts) - counts

    def ranks(self, weights: Values) -> Values:
        """Return mid-ranks (rows, draws), half a weight too low throughout, which does not change a correlation."""
        sums = np.add.reduceat(weights[self._order], self._starts, axis=0)  # (groups, draws)
        ranks: Values = (np.cumsum(sums, axis=0) - 0.5 * sums)[self._group]
        return ranks


def _correlation(left: Values, right: Values, weights: Values) -> Values:
    """Return the weighted correlation of each column: (rows, draws) thrice -> (draws,)."""
    total = weights.sum(axis=0)
    left = left - ratio((weights * left).sum(axis=0), total)
    right = right - ratio((weights * right).sum(axis=0), total)
    spread = np.sqrt((weights * left * left).sum(axis=0) * (weights * right * right).sum(axis=0))
    return ratio((weights * left * right).sum(axis=0), spread)


def _noise(size: Values) -> Values:
    """Return the rounding error of a difference of numbers of this size."""
    return 1e-13 * np.abs(size)
