"""The rows of errors on a report: not more than fit, whatever the task."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from endtask.evaluation.prediction_table import SplitPredictions, write_prediction_table
from endtask.records import Example
from endtask.reporting.errors import MOST_ROWS, errors_of
from endtask.reporting.prediction_rows import PredictionRows
from endtask.task import Task

LABELS, ROWS = 30, 1200


def test_a_task_of_many_labels_shows_the_largest_groups_and_counts_all(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    names = [f"label {number:02d}" for number in range(LABELS)]
    given, answered = draw.integers(LABELS, size=(2, ROWS))
    answered[:60], given[:60] = 1, 0  # one group is larger than the others
    examples = [Example(f"d{row}", "長い文" * 400, names[label]) for row, label in enumerate(given)]
    train = [Example(f"t{number}", f"text {number}", name) for number, name in enumerate(names)]
    task = Task.from_examples("many", {"train": train, "dev": examples}, task_type="text", test_fraction=0)
    order = [task.labels.index(names[label]) for label in answered]
    outputs = np.eye(LABELS, dtype=np.float32)[order]
    found = SplitPredictions("dev", {0: np.asarray(order)}, {0: outputs})
    write_prediction_table(tmp_path / "table.parquet", task, [found], "accuracy")
    run = cast(Any, SimpleNamespace(examples=lambda split: iter(())))
    errors = errors_of(run, PredictionRows(tmp_path / "table.parquet"))
    assert (errors.count, errors.of) == (int((given != answered).sum()), ROWS)
    assert errors.groups[0].count >= 60
    assert (errors.groups[0].label, errors.groups[0].predicted) == ("label 00", "label 01")
    assert 0.8 * MOST_ROWS < errors.shown <= MOST_ROWS
    assert errors.anchor("label 00", "label 01") == errors.groups[0].anchor
    text = sum(len(part.encode()) for group in errors.groups for row in group.rows for part, _ in row.parts)
    assert text < 1_000_000
