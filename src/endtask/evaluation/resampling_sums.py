"""Scores that follow from sums over rows, of labels, tags and numbers, for many runs and weightings of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.spans import scheme_of, spans_of
from endtask.task.targets import NO_WORD, Answers, ragged

Values = NDArray[np.float64]
_LARGEST_CHUNK = 2**21  # numbers held at a time


class RowSums:
    """Figures of each run and row (runs, rows, figures); a score is a function of their weighted sums over the rows.

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
        """How many weightings of the rows are worth holding in memory together."""
        return max(1, _LARGEST_CHUNK // (len(self._matrix) + self._rows))

    def weighted(self, weights: NDArray[Any]) -> Values:
        """Sums (runs, figures, draws) for weights (rows, draws)."""
        sums: Values = self._matrix @ weights.astype(np.float64, copy=False)
        return sums.reshape(self._runs, self._statistics, weights.shape[1])

    def scores(self, counts: Values) -> Values:
        """Scores (runs, draws) of sums (runs, figures, draws)."""
        return self._score(counts)


def ratio(above: Values, below: Values) -> Values:
    """A quotient, and 0 where nothing is below the line."""
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def label_sums(predicted: Answers, truth: Answers, metric: str) -> RowSums:
    """Of labels (runs, rows, labels), 0 or 1 each: F1 over all of them, the labels' mean F1, or rows that are right."""
    if metric == "accuracy":
        right = (predicted == truth).all(axis=-1)
        return RowSums(_with_ones(right), lambda sums: ratio(sums[:, 0], sums[:, 1]))
    both = predicted + truth
    statistics = np.concatenate([(both == 2).astype(np.float64), both.astype(np.float64)], axis=-1)
    if metric == "micro_f1":
        halves = statistics.reshape(*statistics.shape[:2], 2, -1).sum(axis=-1)
        return RowSums(halves, lambda sums: ratio(2 * sums[:, 0], sums[:, 1]))
    return RowSums(statistics, _mean_f1)


def _mean_f1(sums: Values) -> Values:
    """The mean F1 of the labels that occur in truth or prediction; 0 where none does."""
    right, both = np.split(sums, 2, axis=1)
    return ratio(ratio(2 * right, both).sum(axis=1), (both > 0).sum(axis=1).astype(np.float64))


def tag_sums(predicted: Answers, truth: Answers, metric: str, labels: Sequence[str]) -> RowSums:
    """Of tags (runs, rows, words): spans that are right, words that are, or rows in which all words are."""
    if metric in ("accuracy", "exact_match"):
        right = ((predicted == truth) & (truth != NO_WORD)).sum(axis=-1)
        words = np.broadcast_to((truth != NO_WORD).sum(axis=-1), right.shape)
        if metric == "exact_match":
            return RowSums(_with_ones(right == words), lambda sums: ratio(sums[:, 0], sums[:, 1]))
        return RowSums(np.stack([right, words], axis=-1).astype(np.float64), lambda sums: ratio(sums[:, 0], sums[:, 1]))
    statistics = span_statistics(predicted, truth, labels, strict=metric.startswith("strict"))
    return RowSums(statistics, _SPAN_SCORES[metric.removeprefix("strict_")])


_SPAN_SCORES: dict[str, Callable[[Values], Values]] = {
    "span_f1": lambda sums: ratio(2 * sums[:, 0], sums[:, 1] + sums[:, 2]),
    "span_precision": lambda sums: ratio(sums[:, 0], sums[:, 1]),
    "span_recall": lambda sums: ratio(sums[:, 0], sums[:, 2]),
}
"""Of the numbers of spans that are right, that were given, and that are true."""


def span_statistics(predicted: Answers, truth: Answers, labels: Sequence[str], *, strict: bool = False) -> Values:
    """For each run and row the numbers of spans that are right, given and true: (runs, rows, 3)."""
    scheme = scheme_of(labels)

    def spans(table: Answers) -> list[set[tuple[str, int, int]]]:
        return [set(spans_of([labels[number] for number in row], scheme, strict=strict)) for row in ragged(table)]

    true = spans(truth)
    rows = [[(len(given & right), len(given), len(right)) for given, right in zip(spans(run), true, strict=True)]
            for run in predicted]  # fmt: skip
    return np.asarray(rows, dtype=np.float64).reshape(len(predicted), len(truth), 3)


def _with_ones(right: NDArray[Any]) -> Values:
    return np.stack([right, np.ones_like(right)], axis=-1).astype(np.float64)
