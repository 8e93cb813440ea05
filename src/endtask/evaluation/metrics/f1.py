"""F1 of classes and of label sets: micro, macro, and of the positive one of two classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import Counted, Form, Metric, Values, metrics
from endtask.evaluation.metrics.class_counts import ClassCounts, ClassScores, share_right
from endtask.evaluation.metrics.row_sums import RowSums, ratio
from endtask.task.targets import Answers


@metrics.register("macro_f1")
class MacroF1(Metric):
    """The mean F1 of the classes or labels that occur in truth or prediction, as in the papers' evaluation code."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        counters = {"classes": _macro_of_classes, "label_sets": _macro_of_label_sets}
        return counters[self.form](predicted, truth)


@metrics.register("micro_f1")
class MicroF1(Metric):
    """F1 over all labels of all rows; where each row has one class it is the accuracy."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        counters = {"classes": _micro_of_classes, "label_sets": _micro_of_label_sets}
        return counters[self.form](predicted, truth)


class _TwoClasses(Metric):
    @classmethod
    def fits(cls, form: Form, labels: Sequence[str]) -> bool:
        return form in cls.forms and len(labels) == 2


@metrics.register("f1")
class F1(_TwoClasses):
    """F1 of the positive class of two."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        counts = ClassCounts(predicted, truth)
        return ClassScores(counts, partial(counts.f1, self.positive))


@metrics.register("accuracy_f1")
class AccuracyF1(_TwoClasses):
    """The mean of accuracy and F1 of the positive class, as GLUE reports MRPC and QQP."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        counts = ClassCounts(predicted, truth)

        def mean(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
            return 0.5 * (share_right(right, named, true) + counts.f1(self.positive, right, named, true))

        return ClassScores(counts, mean)


def _macro_of_classes(predicted: Answers, truth: Answers) -> Counted:
    return ClassScores(ClassCounts(predicted, truth), mean_f1)


def _micro_of_classes(predicted: Answers, truth: Answers) -> Counted:
    return ClassScores(ClassCounts(predicted, truth), share_right)


def _macro_of_label_sets(predicted: Answers, truth: Answers) -> Counted:
    return RowSums(_right_and_both(predicted, truth), _mean_f1_of_labels)


def _micro_of_label_sets(predicted: Answers, truth: Answers) -> Counted:
    sums = _right_and_both(predicted, truth)
    sums = sums.reshape(*sums.shape[:2], 2, -1).sum(axis=-1)
    return RowSums(sums, lambda found: ratio(2 * found[:, 0], found[:, 1]))


def _right_and_both(predicted: Answers, truth: Answers) -> Values:
    """Return for each label whether it is right, then how often it occurs in both: (runs, rows, 2 * labels)."""
    both = predicted + truth
    return np.concatenate([(both == 2).astype(np.float64), both.astype(np.float64)], axis=-1)


def _mean_f1_of_labels(sums: Values) -> Values:
    """Return the mean F1 of the labels that occur in truth or prediction; 0 where none does."""
    right, both = np.split(sums, 2, axis=1)
    return ratio(ratio(2 * right, both).sum(axis=1), (both > 0).sum(axis=1).astype(np.float64))


def mean_f1(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """Return the mean F1 of the classes that occur in truth or prediction."""
    both = (named + true).astype(np.float64)
    occurs = both > 0
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=occurs)
    means: Values = f1.sum(axis=1) / occurs.sum(axis=1)
    return means
