"""Calibration, coverage and slices of the scored rows in the report."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from endtask.reporting import format as shown
from endtask.reporting.plots import Series, line_chart
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.run_folder import RunFolder

_COVERAGES = (0.5, 0.7, 0.8, 0.9, 1.0)
_CURVE_POINTS = 40
_FEWEST = 5  # rows of a slice
_MOST_CLASSES = 20
_LENGTHS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")
_NORMAL = 1.959964  # 97.5% quantile of the normal distribution


@dataclass(frozen=True)
class CalibrationSection:
    """Charts, the mean calibration error before and after the temperatures, and the temperatures of the seeds."""

    charts: tuple[Markup, ...]
    before: float
    after: float
    temperatures: str


@dataclass(frozen=True)
class Coverage:
    """The share of rows that are answered, the least confidence among them, and their accuracy."""

    share: float
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Slice:
    """Some of the scored rows: the share that is right with its 95% interval (Wilson)."""

    kind: str
    name: str
    rows: int
    right: float
    low: float
    high: float


def calibration_section(run: RunFolder) -> CalibrationSection | None:
    """Return the calibration of an evaluated run; None for numbers and for runs of older versions."""
    stored = run.calibration
    if stored is None:
        return None
    seeds = stored["seeds"]
    before, after = (float(np.mean([seed[key] for seed in seeds])) for key in ("ece", "ece_scaled"))
    curves = []
    for name, key in (("as it is", "curve"), ("with temperature", "curve_scaled")):
        curves.append(Series(name, tuple((point["confidence"], point["accuracy"]) for point in stored[key])))
    curves.append(Series("perfect", ((0.0, 0.0), (1.0, 1.0)), is_reference=True))
    chart = line_chart(
        curves,
        title="Reliability: accuracy by confidence",
        x_label="confidence",
        y_label="accuracy",
        x_format=shown.share,
        y_format=shown.share,
        x_step=0.0,
    )
    temperatures = ", ".join(f"{seed['temperature']:.2f} (seed {seed['seed']})" for seed in seeds)
    return CalibrationSection((chart,), before, after, temperatures)


def _right_by_confidence(rows: PredictionRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return confidence and whether it is right for each scored row, the surest first."""
    confidence = np.asarray([rows.columns["confidence"][row] for row in rows.scored], dtype=np.float64)
    right = np.asarray([rows.columns["right"][row] for row in rows.scored], dtype=np.float64)
    order = np.argsort(-confidence, kind="stable")
    return confidence[order], right[order]


def coverage_chart(rows: PredictionRows) -> Markup | None:
    """Return a chart of the accuracy if only the surest answers are given; None for numbers."""
    if rows.form == "numbers" or not len(rows.scored):
        return None
    _, right = _right_by_confidence(rows)
    accuracy = np.cumsum(right) / np.arange(1, len(right) + 1)
    first = max(0, len(right) // 20 - 1)  # the accuracy of very few rows is noise
    indices = np.unique(np.linspace(first, len(right) - 1, _CURVE_POINTS).astype(int))
    points = tuple(((index + 1) / len(right), float(accuracy[index])) for index in indices.tolist())
    return line_chart(
        [Series("accuracy", points)],
        title="Accuracy if only the surest rows are answered",
        x_label="share of rows answered",
        y_label="accuracy",
        x_format=shown.share,
        y_format=shown.share,
        x_step=0.0,
    )


def coverages(rows: PredictionRows) -> list[Coverage]:
    """Return accuracy and least confidence at some shares of answered rows; empty for numbers."""
    if rows.form == "numbers" or not len(rows.scored):
        return []
    confidence, right = _right_by_confidence(rows)
    counts = [math.ceil(share * len(right)) for share in _COVERAGES]
    return [
        Coverage(share, float(confidence[count - 1]), float(right[:count].mean()))
        for share, count in zip(_COVERAGES, counts, strict=True)
    ]


def slices(rows: PredictionRows) -> list[Slice]:
    """Return the scored rows by length, class, test set, leaks and agreement of the seeds; empty for numbers."""
    if rows.form == "numbers" or not len(rows.scored):
        return []
    found = []
    for kind, names in _slice_names(rows):
        for name in dict.fromkeys(names if kind == "length" else sorted(filter(None, names))):
            chosen = [row for row, own in zip(rows.scored.tolist(), names, strict=True) if own == name]
            if len(chosen) >= _FEWEST:
                found.append(_slice(kind, name, [bool(rows.columns["right"][row]) for row in chosen]))
    return sorted(found, key=lambda one: _LENGTHS.index(one.name) if one.kind == "length" else len(_LENGTHS))


def _slice_names(rows: PredictionRows) -> Iterator[tuple[str, list[Any]]]:
    """Yield each kind of slice with the name of every scored row's slice; None where a row has none."""
    columns = {name: [values[row] for row in rows.scored] for name, values in rows.columns.items()}
    yield "length", _by_length(columns["words"])
    if rows.form == "classes" and len(set(columns["label"])) <= _MOST_CLASSES:
        yield "class", columns["label"]
    yield "test set", columns["test_set"]
    if any(columns["leaked"]):
        yield "leak", ["also in train" if leaked else "not in train" for leaked in columns["leaked"]]
    if len(rows.metadata["seeds"]) > 1:
        agree = [len({str(vote["answer"]) for vote in votes}) == 1 for votes in columns["votes"]]
        yield "seeds", ["agree" if same else "disagree" for same in agree]


def _by_length(words: list[int]) -> list[str]:
    """Return the quarter of each row by its number of words.

    >>> _by_length([1, 2, 3, 4])
    ['shortest quarter', 'second quarter', 'third quarter', 'longest quarter']
    """
    edges = np.quantile(words, (0.25, 0.5, 0.75))
    return [_LENGTHS[int(np.searchsorted(edges, count, side="left"))] for count in words]


def _slice(kind: str, name: str, right: list[bool]) -> Slice:
    low, high = wilson_interval(sum(right), len(right))
    return Slice(kind, name, len(right), sum(right) / len(right), low, high)


def wilson_interval(right: int, rows: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share.

    >>> tuple(round(end, 3) for end in wilson_interval(8, 10))
    (0.49, 0.943)
    """
    share, square = right / rows, _NORMAL**2
    middle = (share + square / (2 * rows)) / (1 + square / rows)
    reach = _NORMAL * math.sqrt(share * (1 - share) / rows + square / (4 * rows**2)) / (1 + square / rows)
    return middle - reach, middle + reach
