"""Accuracy: rows or words that are right."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from endtask.evaluation.metrics.base import Counted, Form, Metric, metrics
from endtask.evaluation.metrics.class_counts import ClassCounts, ClassScores, share_right
from endtask.evaluation.metrics.row_sums import RowSums, first_by_second, with_ones
from endtask.task.targets import NO_WORD, Answers


@metrics.register("accuracy")
class Accuracy(Metric):
    """The share of rows that are right, of label sets in all labels; of tags the share of words."""

    forms: ClassVar[tuple[Form, ...]] = ("classes", "label_sets", "tags")

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        counters = {"classes": _of_classes, "label_sets": _of_label_sets, "tags": _of_words}
        return counters[self.form](predicted, truth)


@metrics.register("exact_match")
class ExactMatch(Metric):
    """The share of texts in which all tags are right."""

    forms: ClassVar[tuple[Form, ...]] = ("tags",)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        words = (truth != NO_WORD).sum(axis=-1)
        return RowSums(with_ones(_right_words(predicted, truth) == words), first_by_second)


def _of_classes(predicted: Answers, truth: Answers) -> Counted:
    return ClassScores(ClassCounts(predicted, truth), share_right)


def _of_label_sets(predicted: Answers, truth: Answers) -> Counted:
    return RowSums(with_ones((predicted == truth).all(axis=-1)), first_by_second)


def _of_words(predicted: Answers, truth: Answers) -> Counted:
    right = _right_words(predicted, truth)
    words = np.broadcast_to((truth != NO_WORD).sum(axis=-1), right.shape)
    return RowSums(np.stack([right, words], axis=-1).astype(np.float64), first_by_second)


def _right_words(predicted: Answers, truth: Answers) -> Answers:
    """Return how many words of each row are right: (runs, rows)."""
    right: Answers = ((predicted == truth) & (truth != NO_WORD)).sum(axis=-1)
    return right
