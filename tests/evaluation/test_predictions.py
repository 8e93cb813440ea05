"""Predictions are read from a run's folder as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from endtask.errors import InputError
from endtask.evaluation.predictions import Predictions, read_predictions
from endtask.io.run_layout import PREDICTIONS

ROWS = [
    {"id": "a", "label": "cat", "predicted": {"0": "cat", "7": "dog"}},
    {"id": "b", "label": "dog", "predicted": {"0": "cat", "7": "dog"}},
    {"id": "c", "label": "dog", "predicted": {"0": "dog", "7": "dog"}},
]


def write(folder: Path, rows: list[dict[str, object]]) -> Path:
    (folder / PREDICTIONS).write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return folder


def test_labels_become_their_positions(tmp_path: Path) -> None:
    found = read_predictions(write(tmp_path, ROWS), ("bird", "cat", "dog"))
    assert found.ids == ("a", "b", "c")
    assert found.seeds == (0, 7)
    assert found.classes == 3
    assert found.truth.tolist() == [1, 2, 2]
    assert found.predicted.tolist() == [[1, 1, 2], [2, 2, 2]]
    assert found.scores("accuracy") == pytest.approx([2 / 3, 2 / 3])


def test_labels_with_odd_line_ends(tmp_path: Path) -> None:
    labels = ("one\u2028line", "two\x85")
    rows = [{"id": name, "label": name, "predicted": {"0": labels[0]}} for name in labels]
    assert read_predictions(write(tmp_path, rows), labels).predicted.tolist() == [[0, 0]]


def test_a_part_of_the_rows(tmp_path: Path) -> None:
    part = read_predictions(write(tmp_path, ROWS), ("cat", "dog")).part(np.array([True, False, True]))
    assert part.ids == ("a", "c")
    assert part.scores("accuracy").tolist() == [1.0, 0.5]


def test_a_run_that_was_not_evaluated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no predictions: the run has not been evaluated"):
        read_predictions(tmp_path, ("cat",))


def test_a_label_that_the_task_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"predictions.jsonl, row 1: unknown label 'dog' \(did you mean 'dogs'\?\)"):
        read_predictions(write(tmp_path, ROWS), ("cat", "dogs"))


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="2 rows and 1 runs"):
        Predictions(("a", "b"), np.array([0, 1]), np.array([[0]]), 2, (0,))
    with pytest.raises(ValueError, match="below 2"):
        Predictions(("a", "b"), np.array([0, 1]), np.array([[0, 2]]), 2, (0,))
