"""`endtask predict --to`: tables with predictions, and files that are no texts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from endtask.serving.predictor import load
from tests.conftest import Answer

Command = Callable[..., Answer]


def test_a_table_with_predictions(finished_run: Path, tmp_path: Path, command: Command) -> None:
    texts = ["=soup bread salt oven", "star", "ball goal team match player win"]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
    answer = command("predict", finished_run, source, "--to", tmp_path / "out.csv", "--device", "cpu")
    assert answer.out == f"wrote {tmp_path / 'out.csv'}: 3 rows\n"
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["'=soup bread salt oven", *texts[1:]]
    for row, found in zip(rows, load(finished_run).predict(texts), strict=True):
        assert row["label"] == found.label
        for name, value in found.probabilities.items():
            assert float(row[f"probability_{name}"]) == pytest.approx(value, abs=1e-6)
    assert list(rows[0]) == ["id", "text", "label", "probability_food", "probability_space", "probability_sport"]
    raw = command("predict", finished_run, "--file", source, "--to", tmp_path / "raw.csv", "--raw-cells")
    assert raw.code == 0
    assert "\n0,=soup" in (tmp_path / "raw.csv").read_text()


def test_requests_that_make_no_sense(finished_run: Path, tmp_path: Path, command: Command) -> None:
    source = tmp_path / "labels.json"
    source.write_text('{"soup": 1}')
    for words, said in (
        (["--file", source], "labels.json: no column 'text'"),
        ([source], "is a file, not a text (--file"),
        ([source, "--to", tmp_path / "out.csv"], "labels.json: no column 'text'"),
        (["a", "b", "--to", tmp_path / "out.csv"], "--to writes the predictions for one file"),
        ([source, "--to", tmp_path / "out.xls"], "unknown kind of file"),
        (["text", "--device", "tpu"], "unknown device 'tpu'"),
    ):
        answer = command("predict", finished_run, *words)
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["labels.json"]
