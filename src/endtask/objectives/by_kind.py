"""The objective of a task, by its kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from endtask.models.batch import IGNORED
from endtask.models.network import TASK
from endtask.objectives.multi_label import MultiLabel
from endtask.objectives.regression import Regression
from endtask.objectives.stream import TextStream
from endtask.objectives.tagging import Tagging
from endtask.objectives.task import Classification, balanced_weights
from endtask.objectives.task_base import TaskObjective
from endtask.task import Task
from endtask.task.targets import NO_WORD, score_scale, targets
from endtask.text.tagged import WordPlaces


@dataclass(frozen=True)
class TaskLoss:
    """How answers are weighed; kinds that know nothing of one of these refuse it before any work (ahead.py)."""

    balanced: bool = False
    label_smoothing: float = 0.0
    rdrop: float = 0.0


def task_objective(
    task: Task,
    name: str,
    stream: TextStream,
    *,
    head: str = TASK,
    weighed: TaskLoss | None = None,
    split: str = "train",
) -> TaskObjective:
    """Learn a split, whose packed texts or windows the stream reads; windows of a text count as one."""
    weighed, texts = weighed or TaskLoss(), stream.texts
    answers = targets(task, split)
    if task.kind == "tags":
        known = answers[answers != NO_WORD]
        known = np.where(known < len(task.labels), known, IGNORED)  # of dev, what no model can give
        smoothing = weighed.label_smoothing
        words = WordPlaces(texts)
        return Tagging(name, stream, words, known, head=head, label_smoothing=smoothing, rdrop=weighed.rdrop)
    text_weights = (1.0 / texts.windows[texts.examples]).astype(np.float32)
    of_texts = answers[texts.examples]
    if task.kind == "score":
        mean, deviation = score_scale(task)
        scores = (of_texts - mean) / deviation
        return Regression(name, stream, scores, head=head, text_weights=text_weights, rdrop=weighed.rdrop)
    if task.kind == "labels":
        known = of_texts[:, : len(task.labels)]
        return MultiLabel(name, stream, known, head=head, text_weights=text_weights, rdrop=weighed.rdrop)
    return Classification(
        name,
        stream,
        of_texts,
        head=head,
        class_weights=balanced_weights(answers, len(task.labels)) if weighed.balanced else None,
        text_weights=text_weights,
        label_smoothing=weighed.label_smoothing,
        rdrop=weighed.rdrop,
    )
