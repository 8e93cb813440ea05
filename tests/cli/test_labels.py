"""`endtask labels` and `endtask predict --calibrated`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from cleanlab.filter import find_label_issues

from endtask.serving.predictor import load
from tests.conftest import Answer

Command = Callable[..., Answer]


def table_of(run: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = parquet.read_table(run / "evaluate" / "predictions.parquet").to_pylist()
    return rows


def test_labels_are_those_that_cleanlab_finds(finished_run: Path, tmp_path: Path, command: Command) -> None:
    answer = command("labels", finished_run, "--to", tmp_path / "labels.csv", "--json")
    with open(tmp_path / "labels.csv", newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert json.loads(answer.out) == {"file": str(tmp_path / "labels.csv"), "labels": len(found)}
    rows, names = table_of(finished_run), ["food", "space", "sport"]
    probabilities = np.asarray([row["probabilities"] for row in rows], dtype=np.float64)
    given = np.asarray([names.index(str(row["label"])) for row in rows])
    expected = find_label_issues(given, probabilities, filter_by="confident_learning", n_jobs=1)
    assert sorted(row["id"] for row in found) == sorted(
        str(row["id"]) for row, issue in zip(rows, expected, strict=True) if issue
    )
    margins = [float(row["label_probability"]) - float(row["suggested_probability"]) for row in found]
    assert margins == sorted(margins)


def test_labels_need_an_evaluated_run_and_a_new_file(finished_run: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "there.csv").write_text("mine")
    for run, name, said in (
        (finished_run, "there.csv", "the file exists and was left as it is"),
        (finished_run, "labels.xlsy", "unknown kind of file"),
        (tmp_path, "new.csv", "no run here"),
    ):
        answer = command("labels", run, "--to", tmp_path / name)
        assert answer.code == 2
        assert said in answer.err
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_calibrated_probabilities_have_the_temperature_of_the_saved_seed(finished_run: Path, command: Command) -> None:
    text = "soup star ball"
    [plain] = load(finished_run).predict([text])
    shown = json.loads(command("predict", finished_run, "--calibrated", "--json", "--device", "cpu", text).out)
    stored = json.loads((finished_run / "evaluate" / "calibration.json").read_text())
    saved = json.loads((finished_run / "model" / "manifest.json").read_text())["counts"]["seed"]
    temperature = next(seed["temperature"] for seed in stored["seeds"] if seed["seed"] == saved)
    logits = np.log(list(plain.probabilities.values())) / temperature
    expected = np.exp(logits) / np.exp(logits).sum()
    assert shown["label"] == plain.label
    assert list(shown["probabilities"].values()) == pytest.approx(expected, abs=1e-6)


def test_a_model_outside_a_run_has_no_temperature(finished_run: Path, command: Command) -> None:
    answer = command("predict", finished_run / "model", "--calibrated", "a text")
    assert answer.code == 2
    assert "no temperature was fitted" in answer.err
