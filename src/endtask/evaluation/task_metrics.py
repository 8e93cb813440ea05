"""Metrics by the kind of the task: what each is called, which is usual, and how runs are scored by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from endtask.config import EvaluateSettings, TaskKind
from endtask.errors import InputError, did_you_mean
from endtask.evaluation.correlations import number_scores
from endtask.evaluation.counting import COUNT_METRICS, ClassCounts, Values
from endtask.evaluation.resampling_sums import label_sums, tag_sums
from endtask.evaluation.spans import scheme_of
from endtask.task import Task
from endtask.task.targets import Answers

_OF_CLASSES = ("macro_f1", "micro_f1", "accuracy", "matthews", "f1", "accuracy_f1")
METRICS_OF: dict[TaskKind, tuple[str, ...]] = {
    "text": _OF_CLASSES,
    "pair": _OF_CLASSES,
    "score": ("pearson", "spearman", "pearson_spearman", "r2"),
    "labels": ("micro_f1", "macro_f1", "accuracy"),
    "tags": ("span_f1", "strict_span_f1", "accuracy", "exact_match"),
}
"""The usual one first. All rise with quality, so that each can decide on dev."""

_BESIDE: dict[TaskKind, tuple[str, ...]] = {"score": ("rmse",), "tags": ("span_precision", "span_recall")}
"""What is reported and decides nothing: one part of a score, or errors, which fall with quality."""


def deciding_metrics(kind: TaskKind, labels: Sequence[str]) -> tuple[str, ...]:
    """The metrics that a task with these labels can be judged by, the usual one first.

    >>> deciding_metrics("tags", ["NOUN", "VERB"])
    ('accuracy', 'exact_match')
    """
    return _that_fit(METRICS_OF[kind], kind, labels)


def _that_fit(names: Sequence[str], kind: TaskKind, labels: Sequence[str]) -> tuple[str, ...]:
    """Without spans there are no scores of spans, and F1 of a class needs one to be opposed to one other."""
    has_spans, two_classes = scheme_of(labels) != "none", len(labels) == 2
    return tuple(
        name
        for name in names
        if (has_spans or kind != "tags" or "span" not in name)
        and (two_classes or kind not in ("text", "pair") or name not in ("f1", "accuracy_f1"))
    )


class Counted(Protocol):
    """Runs of one system whose scores follow from weights of the rows; what `weighted` gives adds up like weights."""

    @property
    def draws_at_once(self) -> int: ...

    def weighted(self, weights: NDArray[Any]) -> NDArray[Any]: ...

    def scores(self, counts: NDArray[Any]) -> Values: ...


@dataclass(frozen=True)
class Measure:
    """A metric for tasks of a kind; tags need their names, and `f1` the number of the class it is about.

    >>> Measure("accuracy").score([0, 1, 1, 1], [0, 1, 0, 1])
    0.75
    """

    name: str
    kind: TaskKind = "text"
    labels: tuple[str, ...] = ()
    positive: int = 1

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        """Predictions (runs, rows, ...) ready to be scored under many weightings of the rows."""
        if self.kind == "score":
            return number_scores(predicted, truth, self.name)
        if self.kind == "labels":
            return label_sums(predicted, truth, self.name)
        if self.kind == "tags":
            return tag_sums(predicted, truth, self.name, self.labels)
        return ClassScores(ClassCounts(predicted, truth), self)

    def score(self, truth: ArrayLike, predicted: ArrayLike) -> float:
        """The score of a single run."""
        return float(score_runs(predicted, truth, self)[0])

    def all_scores(self, truth: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
        """Every metric that this kind has, by name."""
        names = _that_fit((*METRICS_OF[self.kind], *_BESIDE.get(self.kind, ())), self.kind, self.labels)
        return {name: replace(self, name=name).score(truth, predicted) for name in names}


class ClassScores:
    """Counts of classes under one metric."""

    def __init__(self, counts: ClassCounts, measure: Measure) -> None:
        if measure.name not in ("f1", "accuracy_f1", *COUNT_METRICS):
            hint = did_you_mean(measure.name, METRICS_OF[measure.kind])
            raise InputError(f"unknown metric {measure.name!r}", hint=hint)
        self._counts, self._measure = counts, measure
        self.draws_at_once = counts.draws_at_once
        self.weighted = counts.weighted

    def scores(self, counts: NDArray[Any]) -> Values:
        """Scores (runs, draws)."""
        name = self._measure.name
        if name == "f1":
            return self._counts.f1(counts, self._measure.positive)
        if name == "accuracy_f1":
            accuracy = self._counts.scores(counts, "accuracy")
            return 0.5 * (accuracy + self._counts.f1(counts, self._measure.positive))
        return self._counts.scores(counts, name)


def measure_of(task: Task, settings: EvaluateSettings) -> Measure:
    """The metric that the settings ask for, or the usual one of the task's kind; one of another kind is refused.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), f"text {n}", n / 7) for n in range(40)]
    >>> measure_of(Task.from_examples("numbers", {"train": rows}, kind="score"), EvaluateSettings()).name
    'pearson'
    """
    known = deciding_metrics(task.kind, task.labels)
    name = known[0] if settings.metric == "auto" else settings.metric
    if name not in known:
        what = f"a task of kind {task.kind!r} with these {len(task.labels)} labels" if task.labels else "scores"
        raise InputError(f"{name!r} does not fit {what}", key="evaluate.metric", hint=f"known: {', '.join(known)}")
    return Measure(name, task.kind, task.all_labels, positive_class(task.labels, settings.positive_label))


def positive_class(labels: Sequence[str], asked: str | None = None) -> int:
    """The number of the class that F1 is about: the one asked for, or the last whose name does not begin with `not`.

    >>> positive_class(["equivalent", "not_equivalent"]), positive_class(["0", "1"]), positive_class(["0", "1"], "0")
    (0, 1, 0)
    """
    if asked is not None and asked not in labels:
        raise InputError(f"no class {asked!r}", key="evaluate.positive_label", hint=did_you_mean(asked, labels))
    if asked is not None:
        return labels.index(asked)
    usual = [place for place, label in enumerate(labels) if not label.lower().startswith("not")]
    return usual[-1] if usual else len(labels) - 1


def as_measure(metric: str | Measure) -> Measure:
    """A metric of classes by its name alone."""
    return Measure(metric) if isinstance(metric, str) else metric


def score_runs(predicted: ArrayLike, truth: ArrayLike, metric: str | Measure) -> Values:
    """The score of each run.

    >>> score_runs([[0, 1, 1], [0, 0, 0]], [0, 1, 0], "accuracy")
    array([0.66666667, 0.66666667])
    """
    measure = as_measure(metric)
    right = checked_truth(truth, measure)
    counts = measure.counted(runs_by_rows(predicted, right), right)
    scores: Values = counts.scores(counts.weighted(np.ones((len(right), 1), dtype=np.float32)))[:, 0]
    return scores


def checked_truth(truth: ArrayLike, measure: Measure) -> Answers:
    """The right answers as an array with at least one row."""
    answers = np.asarray(truth)
    if answers.ndim != (2 if measure.kind in ("labels", "tags") else 1) or not len(answers):
        raise ValueError(f"truth of shape {answers.shape} is not a list of answers of kind {measure.kind!r}")
    return answers.astype(np.float64 if measure.kind == "score" else np.int64, copy=False)


def runs_by_rows(predicted: ArrayLike, truth: Answers) -> Answers:
    """Answers as runs x rows; a single run may be given flat, groups of runs with one axis more."""
    table = np.asarray(predicted)
    if table.ndim - truth.ndim not in (0, 1, 2) or table.shape[-truth.ndim :] != truth.shape or not table.size:
        raise ValueError(f"predictions of shape {table.shape} do not fit {len(truth)} rows of truth")
    return table.reshape(-1, *truth.shape).astype(truth.dtype, copy=False)
