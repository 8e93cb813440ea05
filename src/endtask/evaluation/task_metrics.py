"""The metrics of a task: which of them fit, the default, and the scores of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from endtask.config import EvaluateSettings
from endtask.config.section import PartConfig
from endtask.errors import InputError, did_you_mean
from endtask.evaluation.metrics.base import Counted, Metric, Values
from endtask.registry import metrics, task_types
from endtask.task import Task
from endtask.task.targets import Answers


def deciding_metrics(type_name: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics that can choose between models for a task with these labels, the default first.

    >>> deciding_metrics("token_classification", ["NOUN", "VERB"])
    ('accuracy', 'exact_match')
    """
    fitting = ((name, metrics.get(name)) for name in fitting_metrics(type_name, labels))
    return tuple(name for name, metric in fitting if metric.decides and metric.higher_is_better)


def fitting_metrics(type_name: str, labels: Sequence[str]) -> tuple[str, ...]:
    """Return all metrics that can score a task with these labels, the preferred ones of its type first."""
    task_type = task_types.get(type_name)
    ordered = dict.fromkeys((*task_type.preferred_metrics, *metrics.names()))
    return tuple(name for name in ordered if metrics.get(name).fits(task_type.form, labels))


@dataclass(frozen=True)
class Measure:
    """A metric for tasks of a type; spans need the names of tags, and `f1` the number of the positive class.

    >>> Measure("accuracy").score([0, 1, 1, 1], [0, 1, 0, 1])
    0.75
    """

    name: str
    type: str = "text"
    labels: tuple[str, ...] = ()
    positive: int = 1
    options: PartConfig | None = None

    @property
    def metric(self) -> Metric:
        """The metric for this task's labels."""
        part: type[Metric] = metrics.get(self.name)
        form = task_types.get(self.type).form
        return part(form, self.labels, positive=self.positive, options=self.options)

    def counted(self, predicted: Answers, truth: Answers) -> Counted:
        """Return predictions (runs, rows, ...) ready to be scored under many weightings of the rows."""
        return self.metric.counted(predicted, truth)

    def score(self, truth: ArrayLike, predicted: ArrayLike) -> float:
        """Return the score of a single run."""
        return float(score_runs(predicted, truth, self)[0])

    def all_scores(self, truth: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
        """Return the score of every metric that fits the task, by name."""
        names = fitting_metrics(self.type, self.labels)
        measures = {name: self if name == self.name else replace(self, name=name, options=None) for name in names}
        return {name: measure.score(truth, predicted) for name, measure in measures.items()}


def measure_of(task: Task, settings: EvaluateSettings) -> Measure:
    """Return the metric of the settings, or the default of the task's type; raises for one that does not fit.

    >>> from endtask.records import Example
    >>> rows = [Example(str(n), f"text {n}", n / 7) for n in range(40)]
    >>> measure_of(Task.from_examples("numbers", {"train": rows}, task_type="regression"), EvaluateSettings()).name
    'pearson'
    """
    known = deciding_metrics(task.type, task.labels)
    name = known[0] if settings.metric == "auto" else settings.metric
    if name not in known:
        what = f"a task of type {task.type!r} with these {len(task.labels)} labels" if task.labels else "numbers"
        raise InputError(f"{name!r} does not fit {what}", key="evaluate.metric", hint=f"known: {', '.join(known)}")
    options = None if settings.metric == "auto" else settings.options
    positive = positive_class(task.labels, settings.positive_label)
    return Measure(name, task.type, task.all_labels, positive, options)


def positive_class(labels: Sequence[str], requested: str | None = None) -> int:
    """Return the index of F1's positive class: the requested class, else the last whose name does not begin with `not`.

    >>> positive_class(["equivalent", "not_equivalent"]), positive_class(["0", "1"]), positive_class(["0", "1"], "0")
    (0, 1, 0)
    """
    if requested is not None and requested not in labels:
        raise InputError(f"no class {requested!r}", key="evaluate.positive_label", hint=did_you_mean(requested, labels))
    if requested is not None:
        return labels.index(requested)
    usual = [index for index, label in enumerate(labels) if not label.lower().startswith("not")]
    return usual[-1] if usual else len(labels) - 1


def as_measure(metric: str | Measure) -> Measure:
    """Return the metric itself, or the metric of classes with this name."""
    return Measure(metric) if isinstance(metric, str) else metric


def score_runs(predicted: ArrayLike, truth: ArrayLike, metric: str | Measure) -> Values:
    """Return the score of each run.

    >>> score_runs([[0, 1, 1], [0, 0, 0]], [0, 1, 0], "accuracy")
    array([0.66666667, 0.66666667])
    """
    measure = as_measure(metric)
    answers = checked_truth(truth, measure)
    counts = measure.counted(runs_by_rows(predicted, answers), answers)
    scores: Values = counts.scores(counts.weighted(np.ones((len(answers), 1), dtype=np.float32)))[:, 0]
    return scores


def checked_truth(truth: ArrayLike, measure: Measure) -> Answers:
    """Return the true answers as an array; raises ValueError for a wrong shape or no rows."""
    answers = np.asarray(truth)
    task_type = task_types.get(measure.type)
    if answers.ndim != task_type.dimensions or not len(answers):
        raise ValueError(f"truth of shape {answers.shape} is not a list of answers of type {measure.type!r}")
    return answers.astype(task_type.dtype, copy=False)


def runs_by_rows(predicted: ArrayLike, truth: Answers) -> Answers:
    """Return answers as runs x rows; a single run may be flat, and groups of runs have one axis more."""
    table = np.asarray(predicted)
    if table.ndim - truth.ndim not in (0, 1, 2) or table.shape[-truth.ndim :] != truth.shape or not table.size:
        raise ValueError(f"predictions of shape {table.shape} do not fit {len(truth)} rows of truth")
    return table.reshape(-1, *truth.shape).astype(truth.dtype, copy=False)
