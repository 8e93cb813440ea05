"""Predictions of several runs for the same rows, read from a run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError, did_you_mean
from endtask.evaluation.metrics.base import Values
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.io.parsing import parse_json
from endtask.io.run_layout import PREDICTIONS
from endtask.io.stage_files import checked
from endtask.registry import task_types
from endtask.task.targets import Answers, numbered


@dataclass(frozen=True)
class Predictions:
    """Answers as `targets` has them, `truth` (rows, ...) and `predicted` (runs, rows, ...), and names of rows and runs.

    Class and tag numbers lie below `classes`.

    >>> both = Predictions(("a", "b"), np.array([0, 1]), np.array([[0, 1], [1, 1]]), 2, (0, 1))
    >>> both.scores("accuracy")
    array([1. , 0.5])
    >>> both.part(np.array([False, True])).scores("accuracy")
    array([1., 1.])
    """

    ids: tuple[str, ...]
    truth: Answers
    predicted: Answers
    classes: int
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.truth) != len(self.ids) or self.predicted.shape != (len(self.seeds), *self.truth.shape):
            raise ValueError(f"{len(self.ids)} rows and {len(self.seeds)} runs, but {self.predicted.shape} predictions")
        for numbers in (self.truth, self.predicted):
            if numbers.dtype.kind != "f" and numbers.size and not -1 <= numbers.min() <= numbers.max() < self.classes:
                raise ValueError(f"class numbers must lie below {self.classes}")

    def scores(self, metric: str | Measure) -> Values:
        """Return the score of each run."""
        return score_runs(self.predicted, self.truth, metric)

    def part(self, rows: NDArray[np.bool_]) -> Predictions:
        """Return the predictions for some of the rows, such as the leak-free ones."""
        ids = tuple(name for name, chosen in zip(self.ids, rows, strict=True) if chosen)
        return Predictions(ids, self.truth[rows], self.predicted[:, rows], self.classes, self.seeds)


def read_predictions(folder: Path, labels: Sequence[str], type_name: str = "text") -> Predictions:
    """Read the predictions of the evaluate stage; class numbers are indices into `labels`."""
    path = folder / PREDICTIONS
    if not path.is_file():
        raise InputError("no predictions: the run has not been evaluated", path=folder)
    # Not splitlines(): a label may contain one of the other characters that end a line there.
    rows = [parse_json(line) for line in checked(path).read_text(encoding="utf-8").split("\n") if line]
    task_type = task_types.get(type_name)
    if task_type.form != "numbers":
        _check_labels(rows, labels, path)
    seeds = list(rows[0]["predicted"]) if rows else []
    truth = numbered([row["label"] for row in rows], type_name, labels)
    tables = [numbered([row["predicted"][seed] for row in rows], type_name, labels) for seed in seeds]
    return Predictions(
        ids=tuple(row["id"] for row in rows),
        truth=truth,
        predicted=np.asarray(tables, dtype=truth.dtype).reshape(len(seeds), *truth.shape),
        classes=max(2, len(labels)) if task_type.form == "label_sets" else len(labels),
        seeds=tuple(int(seed) for seed in seeds),
    )


def _check_labels(rows: Sequence[dict[str, Any]], labels: Sequence[str], path: Path) -> None:
    known = set(labels)
    for number, row in enumerate(rows, start=1):
        for answer in (row["label"], *row["predicted"].values()):
            for label in [answer] if isinstance(answer, str) else answer:
                if label not in known:
                    raise InputError(
                        f"unknown label {label!r}", path=path, row=number, hint=did_you_mean(label, labels)
                    )
