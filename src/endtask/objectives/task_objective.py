"""The objective of a task, by its kind."""

from __future__ import annotations

import numpy as np

from endtask.encoders.batch import IGNORED
from endtask.encoders.network import TASK
from endtask.objectives.classification import Classification
from endtask.objectives.multilabel import MultiLabel
from endtask.objectives.regression import Regression
from endtask.objectives.stream import TextStream
from endtask.objectives.task_base import TaskObjective
from endtask.objectives.token_classification import Tagging
from endtask.task import Task
from endtask.task.targets import NO_WORD, score_scale, targets
from endtask.tokenization.word_alignment import WordStarts


def task_objective(
    task: Task,
    name: str,
    stream: TextStream,
    *,
    head: str = TASK,
    rdrop: float = 0.0,
    split: str = "train",
) -> TaskObjective:
    """Learn a split, whose packed texts or windows the stream reads; windows of a text count as one."""
    texts, answers = stream.texts, targets(task, split)
    if task.kind == "tags":
        known = answers[answers != NO_WORD]
        known = np.where(known < len(task.labels), known, IGNORED)  # of dev, what no model can give
        return Tagging(name, stream, WordStarts(texts), known, head=head, rdrop=rdrop)
    text_weights = (1.0 / texts.windows[texts.examples]).astype(np.float32)
    of_texts = answers[texts.examples]
    if task.kind == "score":
        mean, deviation = score_scale(task)
        scores = (of_texts - mean) / deviation
        return Regression(name, stream, scores, head=head, text_weights=text_weights, rdrop=rdrop)
    if task.kind == "labels":
        known = of_texts[:, : len(task.labels)]
        return MultiLabel(name, stream, known, head=head, text_weights=text_weights, rdrop=rdrop)
    return Classification(name, stream, of_texts, head=head, text_weights=text_weights, rdrop=rdrop)
