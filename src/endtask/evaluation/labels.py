"""From the outputs of a network to answers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.task_metrics import Measure
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, targets

Outputs = NDArray[np.float32]
"""Probabilities (rows, classes or labels), standardised scores (rows, 1), or probabilities of each word (words, tags);
those of a word that the network did not see are 0."""

_SMALLEST = 1e-7  # an impossible answer would make the perplexity of all infinite
_THRESHOLDS = np.linspace(0.05, 0.95, 19)


def answers_of(task: Task, split: str, outputs: Outputs, *, threshold: float = 0.5) -> Answers:
    """Return the answers in the form of `targets`.

    Best class or tag, score on the task's own scale, or labels above a threshold.
    """
    answers: Answers = task.task_type.decode(task, split, outputs, threshold)
    return answers


def perplexity(task: Task, split: str, outputs: Outputs) -> float | None:
    """exp of the mean cross-entropy of the right classes or tags; words that were cut off do not count."""
    if not task.task_type.one_label:
        return None
    right = targets(task, split)
    right = right[right != NO_WORD]
    seen = outputs.any(axis=-1) & (right < outputs.shape[-1])
    if not seen.any():
        return None
    probabilities = outputs[seen, right[seen]].astype(np.float64)
    return float(np.exp(-np.log(np.maximum(probabilities, _SMALLEST)).mean()))


def best_threshold(task: Task, split: str, outputs: Outputs, measure: Measure) -> float:
    """The threshold of labels with the best score, in steps of 0.05; of equals the one nearest to a half."""
    truth = targets(task, split)
    scores = {
        float(threshold): measure.score(truth, answers_of(task, split, outputs, threshold=float(threshold)))
        for threshold in _THRESHOLDS.round(2)
    }
    return max(scores, key=lambda threshold: (scores[threshold], -abs(threshold - 0.5)))
