"""Matthews' correlation coefficient."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.metrics.base import Counted, Metric, Values, metrics
from endtask.evaluation.metrics.class_counts import ClassCounts, ClassScores
from endtask.task.targets import Answers


@metrics.register("matthews")
class Matthews(Metric):
    """Matthews' correlation for any number of classes (Gorodkin, 2004); 0 where all of one side is one class."""

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        return ClassScores(ClassCounts(predicted, truth), matthews)


def matthews(right: NDArray[Any], named: NDArray[Any], true: NDArray[Any]) -> Values:
    """Return the correlation (runs, draws) from counts."""
    right, named, true = (counts.astype(np.float64) for counts in (right, named, true))
    rows = true.sum(axis=0)
    above = right.sum(axis=1) * rows - (named * true).sum(axis=1)
    spread = (rows**2 - (named**2).sum(axis=1)) * (rows**2 - (true**2).sum(axis=0))
    scores: Values = np.divide(above, np.sqrt(spread), out=np.zeros_like(above), where=spread > 0)
    return scores
