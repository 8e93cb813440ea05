"""What several runs of one system said about the same rows, read back from a run's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError, did_you_mean
from endtask.evaluate.counting import Labels, Values, score_runs
from endtask.files.run_layout import PREDICTIONS


@dataclass(frozen=True)
class Predictions:
    """Class numbers below `classes`: `truth` (rows,) and `predicted` (runs, rows), with the rows' and runs' names.

    >>> both = Predictions(("a", "b"), np.array([0, 1]), np.array([[0, 1], [1, 1]]), 2, (0, 1))
    >>> both.scores("accuracy")
    array([1. , 0.5])
    >>> both.part(np.array([False, True])).scores("accuracy")
    array([1., 1.])
    """

    ids: tuple[str, ...]
    truth: Labels
    predicted: Labels
    classes: int
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.truth.shape != (len(self.ids),) or self.predicted.shape != (len(self.seeds), len(self.ids)):
            raise ValueError(f"{len(self.ids)} rows and {len(self.seeds)} runs, but {self.predicted.shape} predictions")
        for numbers in (self.truth, self.predicted):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.classes:
                raise ValueError(f"class numbers must lie below {self.classes}")

    def scores(self, metric: str) -> Values:
        """The score of each run."""
        return score_runs(self.predicted, self.truth, metric)

    def part(self, rows: NDArray[np.bool_]) -> Predictions:
        """Some of the rows alone, such as those that do not also stand in train."""
        ids = tuple(name for name, kept in zip(self.ids, rows, strict=True) if kept)
        return Predictions(ids, self.truth[rows], self.predicted[:, rows], self.classes, self.seeds)


def read_predictions(folder: Path, labels: Sequence[str]) -> Predictions:
    """The predictions that the evaluate stage left in its folder, as positions in `labels`."""
    path = folder / PREDICTIONS
    if not path.is_file():
        raise InputError("no predictions: the run has not been evaluated", path=folder)
    # Not splitlines(): a label may hold one of the other marks that it takes for the end of a line.
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    number = {label: position for position, label in enumerate(labels)}
    for row, found in enumerate(rows, start=1):
        for label in (found["label"], *found["predicted"].values()):
            if label not in number:
                raise InputError(f"unknown label {label!r}", path=path, row=row, hint=did_you_mean(label, labels))
    seeds = list(rows[0]["predicted"]) if rows else []
    table = [[number[row["predicted"][seed]] for row in rows] for seed in seeds]
    return Predictions(
        ids=tuple(row["id"] for row in rows),
        truth=np.asarray([number[row["label"]] for row in rows], dtype=np.int64),
        predicted=np.asarray(table, dtype=np.int64).reshape(len(seeds), len(rows)),
        classes=len(labels),
        seeds=tuple(int(seed) for seed in seeds),
    )
