"""Calibration: whether answers with a probability of 80% are right in 80% of the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.task import Task
from endtask.task.targets import NO_WORD, targets

if TYPE_CHECKING:
    from endtask.evaluation.outputs import Outputs

BINS = 15
Floats = NDArray[np.float64]


def expected_calibration_error(confidence: Floats, right: NDArray[np.bool_], *, bins: int = BINS) -> float:
    """Return the mean difference of confidence and accuracy in bins of equal width, weighted by their answers.

    >>> round(expected_calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False])), 3)
    0.1
    """
    if not len(confidence):
        return 0.0
    # A confidence on an edge belongs to the bin below it, as in Guo et al. (2017).
    number = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(number, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def calibration_error(task: Task, split: str, outputs: Outputs) -> float | None:
    """Return the calibration error of a split: of the best class or tag, or of every label; None for numbers."""
    pairs = _confidences(task, split, outputs)
    return None if pairs is None else expected_calibration_error(*pairs)


def _confidences(task: Task, split: str, outputs: Outputs) -> tuple[Floats, NDArray[np.bool_]] | None:
    truth: NDArray[Any] = targets(task, split)
    if task.task_type.form == "numbers":
        return None
    if not task.task_type.one_label:  # a probability for each label of each row
        return outputs.astype(np.float64).ravel(), truth[:, : outputs.shape[1]].astype(bool).ravel()
    truth = truth[truth != NO_WORD]
    seen = outputs.any(axis=-1)  # a word that was truncated has no probabilities
    return outputs[seen].max(axis=-1).astype(np.float64), outputs[seen].argmax(axis=-1) == truth[seen]
