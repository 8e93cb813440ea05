"""What a user would try first: always the commonest answer, and a bag of words with a linear model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from endtask.evaluation.labels import usual_tag
from endtask.evaluation.linear import Linear, Predict, linear_models
from endtask.evaluation.task_metrics import Measure
from endtask.records import Example
from endtask.task import Task
from endtask.task.targets import Answers, numbered, padded, targets

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

    >>> rows = [Example(str(n), f"text {n}", "rare" if n % 4 == 0 else "usual") for n in range(40)]
    >>> majority_baseline(Task.from_examples("uneven", {"train": rows}), "accuracy").description
    "majority class ('usual')"
    """
    began = time.monotonic()
    return _baseline(task, _measure(task, metric), _commonest(task), began, by)


def tfidf_baseline(task: Task, metric: str | Measure, *, by: Split = "test") -> Baseline:
    """TF-IDF of one and two words or signs with a linear model; its strength is chosen on dev.

    Of tags, a linear classifier of each word in its context. Rows are those of test, or of dev if asked for or where
    there is no test split.
    """
    began, measure = time.monotonic(), _measure(task, metric)
    truth = targets(task, "dev")
    best = max(linear_models(task), key=lambda model: measure.score(truth, model.predict(task.dev)))
    return _baseline(task, measure, best, began, by)


def _measure(task: Task, metric: str | Measure) -> Measure:
    return Measure(metric, task.kind, task.all_labels) if isinstance(metric, str) else metric


def _commonest(task: Task) -> Linear:
    labels = [example.label for example in task.train]
    if task.kind == "score":
        mean = float(np.mean(targets(task, "train")))
        return Linear(lambda examples: np.full(len(examples), mean), f"the mean of train ({mean:.3g})")
    if task.kind == "tags":
        return Linear(_commonest_tags(task), "each word's commonest tag in train")
    counts = Counter(labels)
    commonest = min(counts, key=lambda label: (-counts[label], label))
    answer = numbered([commonest], task.kind, task.all_labels)
    name = f"majority class ({commonest!r})" if task.kind != "labels" else f"commonest labels ({_listed(commonest)})"
    return Linear(lambda examples: np.repeat(answer, len(examples), axis=0), name)


def _listed(labels: object) -> str:
    return ", ".join(labels) if isinstance(labels, tuple) and labels else "none"


def _commonest_tags(task: Task) -> Predict:
    """A word that train does not have gets the tag of words outside spans."""
    number = {tag: place for place, tag in enumerate(task.labels)}
    counts: dict[str, Counter[int]] = {}
    for example in task.train:
        assert isinstance(example.label, tuple)
        for word, tag in zip(example.tokens or (), example.label, strict=True):
            counts.setdefault(word.lower(), Counter())[number[tag]] += 1
    best = {word: min(found, key=lambda tag: (-found[tag], tag)) for word, found in counts.items()}
    usual = number[usual_tag(task)]

    def predict(examples: Sequence[Example]) -> Answers:
        return padded([[best.get(word.lower(), usual) for word in example.tokens or ()] for example in examples])

    return predict


def _baseline(task: Task, measure: Measure, model: Linear, began: float, by: Split) -> Baseline:
    dev = model.predict(task.dev)
    predicted = model.predict(task.test) if by == "test" and task.test else dev
    score = measure.score(targets(task, "dev"), dev)
    return Baseline(predicted, dev, score, model.description, time.monotonic() - began)
