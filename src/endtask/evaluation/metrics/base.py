"""The contract of a metric.

A metric registers itself under the name that `evaluate.metric` takes. One function is enough:

    @metrics.register("error_rate")
    class ErrorRate(Metric):
        forms = ("classes",)
        higher_is_better = False

        def compute(self, truth, predicted):
            return float((truth != predicted).mean())

Significance tests and intervals then call it for every permutation or sample. The package's metrics implement
`counted` instead, which scores all of them by a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from endtask.config.section import PartConfig
from endtask.registry import metrics as metrics

Answers = NDArray[Any]
"""Answers of one run (rows, ...), as in task/targets.py."""
Values = NDArray[np.float64]
Form = Literal["classes", "numbers", "label_sets", "tags"]
"""What an answer is: a class number, a number, 0 or 1 for each label, or a tag number for each word."""
_SAMPLES_AT_ONCE = 64
LARGEST_CHUNK = 2**21  # numbers in memory at a time


class Counted(Protocol):
    """Runs of one system, ready to be scored for many weights of the rows; `weighted` results add up like weights."""

    @property
    def draws_at_once(self) -> int:
        """How many weightings of the rows to hold in memory together."""
        ...

    def weighted(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return what the scores are computed from, for weights (rows, draws); the draws are its last axis."""
        ...

    def scores(self, counts: NDArray[Any]) -> Values:
        """Return scores (runs, draws)."""
        ...


class Metric:
    """Base class of all metrics; an object scores one task.

    `labels` are the names of the task's classes, labels or tags; `positive` is the positive one of two classes.
    """

    name: ClassVar[str]
    """Set by the registry."""
    forms: ClassVar[tuple[Form, ...]] = ("classes",)
    """The forms of answers that it scores."""
    higher_is_better: ClassVar[bool] = True
    """Whether a higher score is better; others never choose between models on dev."""
    decides: ClassVar[bool] = True
    """Whether `evaluate.metric` may name it; a metric that is half of another, such as recall, is only reported."""

    class Config(PartConfig):
        """Options of this metric, in the section `evaluate`."""

    def __init__(
        self, form: Form, labels: Sequence[str] = (), *, positive: int = 1, options: PartConfig | None = None
    ) -> None:
        self.form, self.labels, self.positive = form, tuple(labels), positive
        self.options = self.Config() if options is None else options

    @classmethod
    def fits(cls, form: Form, labels: Sequence[str]) -> bool:
        """Return whether it can score answers of this form with these labels."""
        return form in cls.forms

    def compute(self, truth: Answers, predicted: Answers) -> float:
        """Return the score of one run: answers (rows, ...) twice."""
        raise NotImplementedError

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        """Return predictions (runs, rows, ...) ready to be scored under many weightings of the rows."""
        return Recomputed(self.compute, predicted, truth)


class Recomputed:
    """Scores of any function of the answers: a row of weight 2 is passed twice.

    >>> share = lambda truth, predicted: float((truth == predicted).mean())
    >>> runs = Recomputed(share, np.array([[0, 1]]), np.array([0, 0]))
    >>> runs.scores(runs.weighted(np.array([[1, 3], [1, 1]])))
    array([[0.5 , 0.75]])
    """

    draws_at_once = _SAMPLES_AT_ONCE

    def __init__(self, compute: Callable[[Answers, Answers], float], predicted: Answers, truth: Answers) -> None:
        self._compute, self._predicted, self._truth = compute, predicted, truth

    def weighted(self, weights: NDArray[Any]) -> Values:
        """Return the weights themselves."""
        return weights.astype(np.float64, copy=False)

    def scores(self, counts: Values) -> Values:
        """Return scores (runs, draws) of weights (rows, draws); 0 where all weights are 0."""
        times = np.rint(counts).astype(np.int64)
        scores = np.zeros((len(self._predicted), counts.shape[1]))
        for draw in range(counts.shape[1]):
            rows = np.repeat(np.arange(len(times)), times[:, draw])
            if len(rows):
                scores[:, draw] = [self._compute(self._truth[rows], run[rows]) for run in self._predicted]
        return scores


class RowSums:
    """Scores that follow from weighted sums over rows.

    Each column of `matrix` holds the statistics of one row; reshaped to `shape`, a weighted sum is what `score` takes,
    with the draws as its last axis.

    >>> hits = RowSums.of(np.array([[[1.0, 1.0], [0.0, 1.0]]]), first_by_second)
    >>> hits.scores(hits.weighted(np.array([[1.0, 3.0], [1.0, 1.0]])))
    array([[0.5 , 0.75]])
    """

    def __init__(self, matrix: Any, shape: tuple[int, ...], score: Callable[[NDArray[Any]], Values]) -> None:
        self._matrix, self._shape, self.scores = matrix, shape, score

    @classmethod
    def of(cls, statistics: Values, score: Callable[[Values], Values]) -> RowSums:
        """Return the sums of statistics (runs, rows, statistics); `score` takes (runs, statistics, draws)."""
        runs, rows, count = statistics.shape
        matrix = np.ascontiguousarray(statistics.transpose(0, 2, 1)).reshape(-1, rows)
        return cls(matrix, (runs, count), score)

    @property
    def draws_at_once(self) -> int:
        """How many weightings of the rows to hold in memory together."""
        return max(1, LARGEST_CHUNK // int(sum(self._matrix.shape)))

    def weighted(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return sums (*shape, draws) for weights (rows, draws)."""
        sums: NDArray[Any] = self._matrix @ weights.astype(self._matrix.dtype, copy=False)
        return sums.reshape(*self._shape, weights.shape[1])


def ratio(above: Values, below: Values) -> Values:
    """Return a quotient, and 0 where the denominator is 0."""
    return np.divide(above, below, out=np.zeros_like(below, dtype=np.float64), where=below != 0)


def first_by_second(sums: Values) -> Values:
    """Return the first sum divided by the second."""
    return ratio(sums[:, 0], sums[:, 1])


@metrics.register("auto")
class Auto(Metric):
    """The default metric of the task's type, which `measure_of` looks up."""

    forms: ClassVar[tuple[Form, ...]] = ()
