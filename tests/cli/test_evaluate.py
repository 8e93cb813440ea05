"""`endtask evaluate`: scores of a run on other rows, against those that the run itself recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sklearn.metrics import precision_recall_fscore_support

import endtask
from endtask.api.scores import Evaluation
from tests.conftest import Answer
from tests.toy_run import write_rows


@pytest.fixture(scope="module")
def on_test(finished_run: Path, toy: Path) -> Evaluation:
    return endtask.load(finished_run).evaluate(toy / "task" / "test.jsonl")


def test_the_test_file_has_the_scores_of_the_run(finished_run: Path, on_test: Evaluation) -> None:
    results = json.loads((finished_run / "evaluate" / "results.json").read_text())
    assert on_test.score == pytest.approx(results["summary"]["mean"], abs=1e-12)
    assert on_test.metric == results["summary"]["metric"]
    for row in results["seeds"]:
        for metric, interval in on_test.scores.items():
            assert interval.by_seed[row["seed"]] == row["scores"][metric]
    interval = on_test.scores[on_test.metric]
    assert [interval.low, interval.high] == results["baselines"]["interval"]
    assert on_test.calibration_error is not None
    assert 0 < on_test.calibration_error < 1


def test_the_scores_of_classes_are_those_of_scikit_learn(finished_run: Path, on_test: Evaluation) -> None:
    lines = (finished_run / "evaluate" / "predictions.jsonl").read_text().splitlines()
    pairs = [(row["label"], found) for row in map(json.loads, lines) for found in row["predicted"].values()]
    expected = precision_recall_fscore_support(*zip(*pairs, strict=True), zero_division=0)
    for number, one in enumerate(on_test.classes):
        precision, recall, f1, support = (column[number] for column in expected)
        assert (one.precision, one.recall, one.f1) == pytest.approx((precision, recall, f1))
        assert one.support == support


def test_rows_whose_text_is_in_train_are_left_out_of_the_leak_free_score(
    finished_run: Path, toy: Path, tmp_path: Path, on_test: Evaluation, command: Callable[..., Answer]
) -> None:
    rows = [json.loads(line) for name in ("test", "train") for line in (toy / "task" / f"{name}.jsonl").open()]
    file = write_rows(tmp_path / "both.jsonl", rows)
    answer = command("evaluate", finished_run, file, "--json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert found["rows"] == 78
    assert len(found["leaked"]) == 60
    assert found["leak_free"]["mean"] == pytest.approx(on_test.score)
    printed = command("evaluate", finished_run, file).out
    assert "78 rows (60 also in train), 2 seeds" in printed
    assert "calibration error (ECE)" in printed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"text": "soup", "label": "fodo"}, "fodo"),
        ({"text": "soup", "lable": "food"}, "label"),
        ({"text": "soup", "label": None}, "row 1: the label is missing"),
    ],
)
def test_wrong_rows_are_one_line(
    finished_run: Path, tmp_path: Path, command: Callable[..., Answer], row: dict[str, str], said: str
) -> None:
    answer = command("evaluate", finished_run, write_rows(tmp_path / "new.jsonl", [row]))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert "new.jsonl" in answer.err
    assert answer.err.count("\n") == 1


def test_runs_and_files_that_are_not_there(finished_run: Path, tmp_path: Path, command: Callable[..., Answer]) -> None:
    assert "no such file" in command("evaluate", finished_run, tmp_path / "absent.csv").err
    assert "no such folder" in command("evaluate", tmp_path / "absent", __file__).err
