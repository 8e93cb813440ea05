"""What a user would try first: always the commonest answer, and a bag of words with a linear model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from endtask.evaluation.baseline_model import BaselineModel
from endtask.evaluation.task_metrics import Measure
from endtask.task import Task
from endtask.task.targets import Answers, targets

VERSION = 2
"""Raised with every change of what a baseline answers, so that answers kept in files are worked out again."""

Split = Literal["test", "dev"]


@dataclass(frozen=True)
class Baseline:
    """Answers for the rows asked for and for dev, the dev score, and the time taken."""

    predicted: Answers
    dev_predicted: Answers
    dev_score: float
    description: str
    seconds: float


def majority_baseline(task: Task, metric: str | Measure, *, by: Split = "test") -> Baseline:
    """The commonest answer of train for every row; the first in the order of labels where several are.

    Of scores that is their mean, of labels the commonest set, and of tags each word's commonest tag. Rows are those of
    test, or of dev if asked for or where there is no test split.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), f"text {n}", "rare" if n % 4 == 0 else "usual") for n in range(40)]
    >>> majority_baseline(Task.from_examples("uneven", {"train": rows}), "accuracy").description
    "majority class ('usual')"
    """
    began = time.monotonic()
    return _baseline(task, _measure(task, metric), task.task_type.commonest(task), began, by)


def tfidf_baseline(task: Task, metric: str | Measure, *, by: Split = "test") -> Baseline:
    """TF-IDF of one and two words or signs with a linear model; its strength is chosen on dev.

    Of tags, a linear classifier of each word in its context. Rows are those of test, or of dev if asked for or where
    there is no test split.
    """
    began, measure = time.monotonic(), _measure(task, metric)
    truth = targets(task, "dev")
    best = max(task.task_type.linear_models(task), key=lambda model: measure.score(truth, model.predict(task.dev)))
    return _baseline(task, measure, best, began, by)


def _measure(task: Task, metric: str | Measure) -> Measure:
    return Measure(metric, task.type, task.all_labels) if isinstance(metric, str) else metric


def _baseline(task: Task, measure: Measure, model: BaselineModel, began: float, by: Split) -> Baseline:
    dev = model.predict(task.dev)
    predicted = model.predict(task.test) if by == "test" and task.test else dev
    score = measure.score(targets(task, "dev"), dev)
    return Baseline(predicted, dev, score, model.description, time.monotonic() - began)
