"""From what a network puts out to answers, by the kind of the task."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.spans import scheme_of
from endtask.evaluation.task_metrics import Measure
from endtask.task import Task
from endtask.task.targets import NO_WORD, Answers, score_scale, targets

Outputs = NDArray[np.float32]
"""Probabilities (rows, classes or labels), standardised scores (rows, 1), or probabilities of each word (words, tags);
those of a word that the network did not see are 0."""

_SMALLEST = 1e-7  # an impossible answer would make the perplexity of all infinite
_THRESHOLDS = np.linspace(0.05, 0.95, 19)


def answers_of(task: Task, split: str, outputs: Outputs, *, threshold: float = 0.5) -> Answers:
    """The answers in the form of `targets`: best class or tag, score on the task's own scale, labels above a threshold.

    A word that was cut off gets the tag of words outside spans, or train's commonest.
    """
    if task.kind == "score":
        mean, deviation = score_scale(task)
        return mean + deviation * outputs[:, 0].astype(np.float64)
    if task.kind == "labels":
        unknown = len(task.all_labels) - len(task.labels)
        return np.pad((outputs >= threshold).astype(np.int64), ((0, 0), (0, unknown)))
    if task.kind == "tags":
        found = np.where(outputs.any(axis=-1), outputs.argmax(axis=-1), task.labels.index(usual_tag(task)))
        table = targets(task, split)
        table[table != NO_WORD] = found
        return table
    best: Answers = outputs.argmax(axis=-1)
    return best


def usual_tag(task: Task) -> str:
    """The tag of a word about which nothing is known."""
    counts = Counter(tag for example in task.train if isinstance(example.label, tuple) for tag in example.label)
    outside = {"bio": "O", "ends": "none"}.get(scheme_of(task.labels), "")
    return next(
        (tag for tag in task.labels if tag.lower() == outside.lower()), max(counts, key=lambda tag: counts[tag])
    )


def perplexity(task: Task, split: str, outputs: Outputs) -> float | None:
    """exp of the mean cross-entropy of the right classes or tags; words that were cut off do not count."""
    if task.kind not in ("text", "pair", "tags"):
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
