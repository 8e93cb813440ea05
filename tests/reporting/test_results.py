"""The results file of a run: scores, class counts and cost, without texts and weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from endtask.errors import InputError
from endtask.reporting.results import check_results_file, results_of, write_results
from endtask.task import Task
from tests.edited import without_records


def test_scores_predictions_and_cost(finished_run: Path, toy: Path) -> None:
    found = results_of(finished_run)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["labels"] == ["food", "space", "sport"]
    assert list(found["stages"]) == ["read", "retrieve", "select", "pack", "pretrain", "finetune", "evaluate", "model"]
    assert found["stages"]["pretrain"]["counts"]["steps"] == 6
    assert found["stages"]["pretrain"]["machine"]["cores"] >= 1
    assert found["cost"]["tokens"] > 0
    assert [row["seed"] for row in found["dev"]] == [0, 1]
    task = Task.read(toy / "task")
    for split, seeds in (("test", found["test"]["seeds"]), ("dev", found["dev"])):
        rows = found["predictions"][split]
        assert rows["truth"] == task.label_numbers(split)
        assert rows["leak_free"] == [1] * 18
        for seed in seeds:
            right = [a == b for a, b in zip(rows["truth"], rows["predicted"][str(seed["seed"])], strict=True)]
            assert sum(right) / 18 == pytest.approx(seed["scores" if split == "test" else "dev"]["accuracy"])
    assert "output_dir" not in found["settings"]
    assert found["settings"]["pretrain"]["max_length"] == 16


def test_neither_texts_nor_weights(finished_run: Path, toy: Path, tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", finished_run)
    written = (tmp_path / "results.json").read_text()
    assert len(written) < 20_000
    task = Task.read(toy / "task")
    assert not [one.text for one in (*task.train, *task.dev, *task.test) if one.text in written]


def test_rows_that_also_stand_in_train(finished_pair_run: Path, own_run: Path) -> None:
    assert results_of(finished_pair_run)["predictions"]["test"]["leak_free"] == [1] * 18
    without_records(own_run)
    train, test = own_run / "read" / "train.jsonl", own_run / "read" / "test.jsonl"
    leaked = {**json.loads(train.read_text().splitlines()[0]), "id": "test-1"}
    lines = test.read_text().splitlines()
    test.write_text("\n".join([json.dumps(leaked), *lines[1:]]) + "\n")
    assert results_of(own_run)["predictions"]["test"]["leak_free"] == [0] + [1] * 17


def test_a_run_half_way(own_run: Path) -> None:
    for stage in ("model", "evaluate"):
        shutil.rmtree(own_run / stage)
    found = results_of(own_run)
    assert found["test"] is None
    assert list(found["predictions"]) == ["dev"]
    for stage in ("finetune", "pretrain", "pack", "select", "retrieve", "read"):
        shutil.rmtree(own_run / stage)
    found = results_of(own_run)
    assert (found["labels"], found["stages"], found["dev"], found["predictions"]) == (None, {}, None, {})


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder, not a file"):
        check_results_file(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        check_results_file(tmp_path / "absent" / "results.json")
    check_results_file(tmp_path / "results.json")
