"""The outputs of a network for the rows of a split, and the answers decoded from them; works without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.task_metrics import Measure
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, targets

Outputs = NDArray[np.float32]
"""What `evaluation.probabilities.class_probabilities` returns."""


@dataclass(frozen=True)
class Answered:
    """The outputs of a seed's weights for a split, and the decoded answers."""

    answers: Answers
    outputs: Outputs
    threshold: float = 0.5


_SMALLEST = 1e-7  # a probability of 0 would make the perplexity infinite
_THRESHOLDS = np.linspace(0.05, 0.95, 19)


def answers_of(task: Task, split: str, outputs: Outputs, *, threshold: float = 0.5) -> Answers:
    """Return the answers in the form of `targets`.

    Best class or tag, score on the task's own scale, or labels above a threshold.
    """
    answers: Answers = task.task_type.decode(task, split, outputs, threshold)
    return answers


def perplexity(task: Task, split: str, outputs: Outputs) -> float | None:
    """Return exp of the mean cross-entropy of the true classes or tags; truncated words do not count."""
    if not task.task_type.one_label:
        return None
    truth = targets(task, split)
    truth = truth[truth != NO_WORD]
    scored = outputs.any(axis=-1) & (truth < outputs.shape[-1])
    if not scored.any():
        return None
    probabilities = outputs[scored, truth[scored]].astype(np.float64)
    return float(np.exp(-np.log(np.maximum(probabilities, _SMALLEST)).mean()))


def best_threshold(task: Task, split: str, outputs: Outputs, measure: Measure) -> float:
    """Return the threshold of labels with the best score, in steps of 0.05; of equal ones the nearest to 0.5."""
    truth = targets(task, split)
    scores = {
        float(threshold): measure.score(truth, answers_of(task, split, outputs, threshold=float(threshold)))
        for threshold in _THRESHOLDS.round(2)
    }
    return max(scores, key=lambda threshold: (scores[threshold], -abs(threshold - 0.5)))
