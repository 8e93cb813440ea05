"""Scores of a model on labelled rows: intervals over rows and seeds, each class, and rows that are also in train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.api.html import table_html
from endtask.evaluation.calibration import calibration_error
from endtask.evaluation.run_baselines import SAMPLES
from endtask.evaluation.significance import bootstrap_interval
from endtask.evaluation.task_metrics import Measure, fitting_metrics
from endtask.reporting.format import metric_name, plural
from endtask.reporting.scores import ClassScores, class_scores
from endtask.task import Task, leaked_ids
from endtask.task.split import group_numbers
from endtask.task.targets import Answers, targets

if TYPE_CHECKING:
    from endtask.evaluation.outputs import Outputs


@dataclass(frozen=True)
class Interval:
    """The mean score over the seeds, its 95% interval over rows and seeds, and the score of each seed."""

    mean: float
    low: float
    high: float
    by_seed: dict[int, float]

    def __float__(self) -> float:
        return self.mean

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Evaluation:
    """The scores of all metrics that fit the task, `metric` being the deciding one.

    `leaked_rows` counts rows whose text is in train, None where train is not known, and `leaked` has their ids;
    `leak_free` is the score on the others. `classes` has the scores of each class, label or type of span.
    `calibration_error` is the expected calibration error, None where there are no probabilities.
    """

    metric: str
    rows: int
    seeds: tuple[int, ...]
    scores: dict[str, Interval]
    leaked_rows: int | None
    leak_free: Interval | None
    classes: tuple[ClassScores, ...]
    calibration_error: float | None = field(default=None, compare=False)
    leaked: tuple[str, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @property
    def score(self) -> float:
        """The mean of the deciding metric over the seeds."""
        return self.scores[self.metric].mean

    def __float__(self) -> float:
        return self.score

    def __getitem__(self, metric: str) -> Interval:
        return self.scores[metric]

    def __str__(self) -> str:
        lines = [self._title(), *(f"{metric_name(name)} {value}" for name, value in self.scores.items())]
        if self.leak_free is not None and self.leaked_rows:
            lines.append(f"{metric_name(self.metric)} {self.leak_free} on the rows that are not in train")
        if self.calibration_error is not None:
            lines.append(f"calibration error (ECE) {self.calibration_error:.3f}")
        seeds = len(self.seeds)
        classes = [
            f"{one.label}: precision {one.precision:.3f}, recall {one.recall:.3f}, F1 {one.f1:.3f} "
            f"({plural(one.support // seeds, 'row')})"
            for one in self.classes
        ]
        return "\n".join([*lines, *classes])

    def _title(self) -> str:
        leaked = "train is not known" if self.leaked_rows is None else f"{self.leaked_rows:,} also in train"
        return f"{plural(self.rows, 'row')} ({leaked}), {plural(len(self.seeds), 'seed')}, 95% intervals"

    def _repr_html_(self) -> str:
        scores = [[metric_name(name), *_cells(value)] for name, value in self.scores.items()]
        if self.leak_free is not None and self.leaked_rows:
            scores.append([f"{metric_name(self.metric)}, not in train", *_cells(self.leak_free)])
        seeds = len(self.seeds)
        classes = [
            [one.label, one.support // seeds, *map(_number, (one.precision, one.recall, one.f1))]
            for one in self.classes
        ]
        tables = table_html(["metric", "mean", "95% interval"], scores, caption=self._title())
        if classes:
            tables += table_html(["class", "rows", "precision", "recall", "F1"], classes)
        return tables


def evaluation_of(
    task: Task,
    split: str,
    answers: Mapping[int, Answers],
    measure: Measure,
    *,
    knows_train: bool = True,
    outputs: Mapping[int, Outputs] | None = None,
) -> Evaluation:
    """Return the scores of every seed's answers for a split; `outputs` are the probabilities that they follow from."""
    examples = task.splits[split]
    rows = _Rows(targets(task, split), np.stack(list(answers.values())), group_numbers(examples), tuple(answers))
    names = sorted(fitting_metrics(measure.type, measure.labels), key=lambda name: name != measure.name)
    measures = {name: measure if name == measure.name else replace(measure, name=name, options=None) for name in names}
    leaked = leaked_ids(task, split) if knows_train else frozenset()
    clean = np.asarray([example.id not in leaked for example in examples], dtype=bool)
    return Evaluation(
        metric=measure.name,
        rows=len(examples),
        seeds=rows.seeds,
        scores={name: rows.interval(one) for name, one in measures.items()},
        leaked_rows=int((~clean).sum()) if knows_train else None,
        leak_free=rows.interval(measure, clean) if knows_train and clean.any() else None,
        classes=_classes(task, split, answers),
        calibration_error=_mean_calibration_error(task, split, outputs or {}),
        leaked=tuple(example.id for example in examples if example.id in leaked),
    )


def _mean_calibration_error(task: Task, split: str, outputs: Mapping[int, Outputs]) -> float | None:
    """Return the mean over the seeds; None where there are no probabilities."""
    errors = [calibration_error(task, split, found) for found in outputs.values()]
    known = [error for error in errors if error is not None]
    return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class _Rows:
    """True answers (rows, ...), those of each seed (seeds, rows, ...), and the group of each row."""

    truth: Answers
    predicted: Answers
    groups: NDArray[np.int64]
    seeds: tuple[int, ...]

    def interval(self, measure: Measure, chosen: NDArray[np.bool_] | None = None) -> Interval:
        """Return the mean score on all or some rows; whole groups of rows are drawn, and seeds."""
        rows: Any = slice(None) if chosen is None else chosen
        truth, runs = self.truth[rows], self.predicted[:, rows]
        low, high = bootstrap_interval(runs, None, truth, measure, groups=self.groups[rows], samples=SAMPLES)
        by_seed = {seed: measure.score(truth, run) for seed, run in zip(self.seeds, runs, strict=True)}
        return Interval(float(np.mean(list(by_seed.values()))), low, high, by_seed)


def _classes(task: Task, split: str, answers: Mapping[int, Answers]) -> tuple[ClassScores, ...]:
    by_seed = {seed: task.task_type.to_names(found, task.all_labels) for seed, found in answers.items()}
    rows = [
        {"label": example.label, "predicted": {str(seed): found[index] for seed, found in by_seed.items()}}
        for index, example in enumerate(task.splits[split])
    ]
    return tuple(class_scores(task.task_type.form, rows, task.labels))


def _cells(value: Interval) -> list[Any]:
    return [_number(value.mean), f"{value.low:.3f} to {value.high:.3f}"]


def _number(value: float) -> str:
    return f"{value:.3f}"
