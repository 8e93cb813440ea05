"""Metrics of classes, label sets and tags: accuracy, F1 and Matthews' correlation.

Each is a function of counts, so that one matrix product scores all permutations or samples of a significance test:
10,000 calls of scikit-learn's functions would take minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import (
    Answers,
    Counted,
    Form,
    Metric,
    RowSums,
    Values,
    first_by_second,
    metrics,
    ratio,
)
from endtask.task.targets import NO_WORD


class ClassCounts(NamedTuple):
    """How often each run predicts each class, and how often correctly: (runs, classes, draws), `true` without runs."""

    names: NDArray[np.int64]
    right: NDArray[Any]
    predicted: NDArray[Any]
    true: NDArray[Any]


def class_counts(predicted: Answers, truth: Answers, score: Callable[[ClassCounts], Values]) -> RowSums:
    """Return predicted classes (runs, rows) ready to be scored from their counts.

    >>> counts = class_counts(np.array([[0, 1, 1]]), np.array([0, 1, 0]), accuracy)
    >>> counts.scores(counts.weighted(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])))
    array([[0.66666667, 1.        ]])
    """
    runs = np.concatenate([truth[None], predicted])  # truth counts as run 0, which is always right
    names, numbers = np.unique(runs, return_inverse=True)
    numbers = numbers.reshape(runs.shape)
    shape = (len(numbers), 2, len(names))  # runs + 1, (right, predicted), classes that occur

    def scores(counts: NDArray[Any]) -> Values:
        return score(ClassCounts(names, counts[1:, 0], counts[1:, 1], counts[0, 0]))

    return RowSums(_one_hot(numbers, shape), shape, scores)


def _one_hot(numbers: NDArray[np.int64], shape: tuple[int, int, int]) -> Any:
    """Return the sparse matrix (runs * 2 * classes, rows) whose product with weights of rows gives the counts."""
    from scipy.sparse import csr_matrix

    runs, two, classes = shape
    named = (two * np.arange(runs)[:, None] + 1) * classes + numbers
    row = np.broadcast_to(np.arange(numbers.shape[1]), numbers.shape)
    right = numbers == numbers[0]
    cells = np.concatenate([named.ravel(), named[right] - classes])
    columns = np.concatenate([row.ravel(), row[right]])
    # Counts of rows are whole numbers: float32 holds them exactly below 2**24 and halves the traffic.
    ones = np.ones(len(cells), dtype=np.float32)
    return csr_matrix((ones, (cells, columns)), shape=(int(np.prod(shape)), numbers.shape[1]))


@metrics.register("accuracy")
class Accuracy(Metric):
    """The share of rows that are right, of label sets in all labels; of tags the share of words."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets", "tags")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        if self.form == "classes":
            return class_counts(predicted, truth, accuracy)
        if self.form == "label_sets":
            return _share_of_rows((predicted == truth).all(axis=-1))
        right = _right_words(predicted, truth)
        words = np.broadcast_to((truth != NO_WORD).sum(axis=-1), right.shape)
        return RowSums.of(np.stack([right, words], axis=-1).astype(np.float64), first_by_second)


@metrics.register("exact_match")
class ExactMatch(Metric):
    """The share of texts in which all tags are right."""

    forms: ClassVar[tuple[Form, ...]] = ("tags",)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return _share_of_rows(_right_words(predicted, truth) == (truth != NO_WORD).sum(axis=-1))


@metrics.register("macro_f1")
class MacroF1(Metric):
    """The mean F1 of the classes or labels that occur in truth or prediction, as in the papers' evaluation code."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        if self.form == "classes":
            return class_counts(predicted, truth, _macro_f1)
        return RowSums.of(_right_and_both(predicted, truth), _macro_f1_of_labels)


@metrics.register("micro_f1")
class MicroF1(Metric):
    """F1 over all labels of all rows; where each row has one class it is the accuracy."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        if self.form == "classes":
            return class_counts(predicted, truth, accuracy)
        sums = _right_and_both(predicted, truth)
        sums = sums.reshape(*sums.shape[:2], 2, -1).sum(axis=-1)
        return RowSums.of(sums, lambda totals: ratio(2 * totals[:, 0], totals[:, 1]))


class _TwoClasses(Metric):
    @classmethod
    def fits(cls, form: Form, labels: Sequence[str]) -> bool:
        return form in cls.forms and len(labels) == 2

    def f1(self, counts: ClassCounts) -> Values:
        """Return the F1 (runs, draws) of the positive class; 0 where it occurs nowhere."""
        (indices,) = np.nonzero(counts.names == self.positive)
        both = (counts.predicted[:, indices] + counts.true[indices]).sum(axis=1, dtype=np.float64)
        return ratio(2 * counts.right[:, indices].sum(axis=1, dtype=np.float64), both)


@metrics.register("f1")
class F1(_TwoClasses):
    """F1 of the positive class of two."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return class_counts(predicted, truth, self.f1)


@metrics.register("accuracy_f1")
class AccuracyF1(_TwoClasses):
    """The mean of accuracy and F1 of the positive class, as GLUE reports MRPC and QQP."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return class_counts(predicted, truth, lambda counts: 0.5 * (accuracy(counts) + self.f1(counts)))


@metrics.register("matthews")
class Matthews(Metric):
    """Matthews' correlation for any number of classes (Gorodkin, 2004); 0 where all of one side is one class."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return class_counts(predicted, truth, _matthews)


def accuracy(counts: ClassCounts) -> Values:
    """Return the share of rows that are right, which is micro-F1 too where each row has one class."""
    shares: Values = counts.right.sum(axis=1, dtype=np.float64) / counts.true.sum(axis=0, dtype=np.float64)
    return shares


def _macro_f1(counts: ClassCounts) -> Values:
    both = (counts.predicted + counts.true).astype(np.float64)
    means: Values = ratio(2 * counts.right, both).sum(axis=1) / (both > 0).sum(axis=1)
    return means


def _matthews(counts: ClassCounts) -> Values:
    right, predicted, true = (table.astype(np.float64) for table in counts[1:])
    rows = true.sum(axis=0)
    above = right.sum(axis=1) * rows - (predicted * true).sum(axis=1)
    spread = (rows**2 - (predicted**2).sum(axis=1)) * (rows**2 - (true**2).sum(axis=0))
    scores: Values = np.divide(above, np.sqrt(spread), out=np.zeros_like(above), where=spread > 0)
    return scores


def _share_of_rows(right: NDArray[Any]) -> RowSums:
    """Return the share of right rows, of (runs, rows)."""
    return RowSums.of(np.stack([right, np.ones_like(right)], axis=-1).astype(np.float64), first_by_second)


def _right_words(predicted: Answers, truth: Answers) -> Answers:
    """Return how many words of each row are right: (runs, rows)."""
    right: Answers = ((predicted == truth) & (truth != NO_WORD)).sum(axis=-1)
    return right


def _right_and_both(predicted: Answers, truth: Answers) -> Values:
    """Return for each label whether it is right, then how often it occurs in both: (runs, rows, 2 * labels)."""
    both = predicted + truth
    return np.concatenate([(both == 2).astype(np.float64), both.astype(np.float64)], axis=-1)


def _macro_f1_of_labels(sums: Values) -> Values:
    """Return the mean F1 of the labels that occur in truth or prediction; 0 where none does."""
    right, both = np.split(sums, 2, axis=1)
    return ratio(ratio(2 * right, both).sum(axis=1), (both > 0).sum(axis=1).astype(np.float64))
