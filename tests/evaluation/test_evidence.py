"""The table of predictions of each task type, nearest rows, temperatures and the map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endtask.evaluation.calibration import calibration_of_seeds, fit_temperature, scaled
from endtask.evaluation.prediction_table import METADATA, SplitPredictions, write_prediction_table
from endtask.evaluation.vectors import TrainVectors, plane
from endtask.records import Example
from endtask.task import Task


def task_of(task_type: str, labels: list[Any], **shape: Any) -> Task:
    texts = ["river stone", "cloud", "green apple", "candle light tower"]
    rows = [Example(f"r{n}", text, label, **shape) for n, (text, label) in enumerate(zip(texts, labels, strict=True))]
    others = [Example(f"d{n}", f"{row.text} more", row.label, **shape) for n, row in enumerate(rows)]
    return Task.from_examples("t", {"train": rows, "dev": others}, task_type=task_type, test_fraction=0)


def written(path: Path, task: Task, outputs: list[Any], threshold: float = 0.5) -> tuple[list[dict[str, Any]], Any]:
    import pyarrow.parquet as parquet

    tables = {seed: np.asarray(one, dtype=np.float32) for seed, one in enumerate(outputs)}
    answers = {seed: task.task_type.decode(task, "dev", one, threshold) for seed, one in tables.items()}
    train = TrainVectors.of(np.eye(4, dtype=np.float32))
    found = SplitPredictions("dev", answers, tables, threshold, np.eye(4, dtype=np.float32))
    assert write_prediction_table(path / "p.parquet", task, [found], "accuracy", train) == 4
    table = parquet.read_table(path / "p.parquet")
    return table.to_pylist(), json.loads(table.schema.metadata[METADATA])


def test_classes_have_the_mean_of_the_seeds_their_votes_and_neighbours(tmp_path: Path) -> None:
    task = task_of("text", ["a", "b", "a", "b"])
    sure, unsure = [[0.9, 0.1]] * 4, [[0.3, 0.7]] * 4
    rows, metadata = written(tmp_path, task, [sure, unsure])
    assert (metadata["labels"], metadata["seeds"], metadata["type"]) == (["a", "b"], [0, 1], "text")
    assert [row["predicted"] for row in rows] == ["a"] * 4
    assert [row["right"] for row in rows] == [True, False, True, False]
    assert rows[0]["confidence"] == pytest.approx(0.6)
    assert rows[0]["probabilities"] == pytest.approx([0.6, 0.4])
    assert rows[0]["votes"] == [{"seed": 0, "answer": "a"}, {"seed": 1, "answer": "b"}]
    assert [row["neighbors"][0] for row in rows] == [{"id": f"r{n}", "similarity": 1.0} for n in range(4)]
    assert [rows[0][key] for key in ("id", "text", "words", "leaked")] == ["d0", "river stone more", 3, False]


def test_label_sets_are_right_as_a_whole(tmp_path: Path) -> None:
    task = task_of("multilabel", [("a",), ("a", "b"), (), ("b",)])
    rows, _ = written(tmp_path, task, [[[0.9, 0.2], [0.8, 0.3], [0.1, 0.1], [0.4, 0.6]]])
    assert [row["predicted"] for row in rows] == [["a"], ["a"], [], ["b"]]
    assert [row["right"] for row in rows] == [True, False, True, True]
    assert [row["confidence"] for row in rows] == pytest.approx([0.8, 0.7, 0.9, 0.6])


def test_numbers_have_no_probabilities(tmp_path: Path) -> None:
    task = task_of("regression", [1.5, 2.0, 2.5, 4.0])
    rows, _ = written(tmp_path, task, [[[0.0]] * 4, [[1.0]] * 4])
    assert rows[0]["predicted"] == pytest.approx(np.mean([2.5, 2.5 + np.std([1.5, 2.0, 2.5, 4.0])]))
    assert (rows[0]["right"], rows[0]["confidence"], rows[0]["probabilities"]) == (None, None, None)


def test_words_have_probabilities_and_the_lowest_is_the_rows(tmp_path: Path) -> None:
    rows = [Example(f"r{n}", "x y", ("A", "B"), tokens=("x", "y")) for n in range(4)]
    task = Task.from_examples("t", {"train": rows, "dev": [*rows]}, task_type="token_classification", test_fraction=0)
    found, _ = written(tmp_path, task, [[[0.9, 0.1], [0.2, 0.8]] * 3 + [[0.7, 0.3], [0.6, 0.4]]])
    assert found[0]["probabilities"] == [pytest.approx([0.9, 0.1]), pytest.approx([0.2, 0.8])]
    assert [row["right"] for row in found] == [True, True, True, False]
    assert [row["confidence"] for row in found] == pytest.approx([0.8, 0.8, 0.8, 0.6])
    assert found[0]["tokens"] == ["x", "y"]


def test_nearest_rows_by_a_loop() -> None:
    random = np.random.default_rng(0)
    train, queries = (random.normal(size=(rows, 5)).astype(np.float32) for rows in (30, 7))
    found = list(TrainVectors.of(train).nearest(queries, 4))
    for query, near in zip(queries, found, strict=True):
        expected = sorted(range(30), key=lambda row: -float(query @ train[row]))[:4]
        assert [row for row, _ in near] == expected


def test_the_fitted_temperature_is_the_best_of_a_grid() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, 2)) * 3
    answers = [("a", "b")[int(label)] for label in (logits.argmax(axis=1) ^ (random.random(200) < 0.25))]
    rows = [Example(str(n), f"text {n}", answer) for n, answer in enumerate(answers)]
    task = Task.from_examples("t", {"train": rows, "dev": rows}, test_fraction=0)
    outputs = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    fitted = fit_temperature(task, "dev", outputs)
    assert fitted is not None
    truth = np.array([answer == "b" for answer in answers]).astype(int)

    def loss(temperature: float) -> float:
        values = np.exp(logits / temperature)
        return float(-np.log((values / values.sum(axis=1, keepdims=True))[np.arange(200), truth]).mean())

    grid = np.geomspace(0.1, 15, 2000)
    assert fitted == pytest.approx(grid[np.argmin([loss(one) for one in grid])], rel=0.01)
    assert scaled(outputs, fitted, one_label=True).sum(axis=1) == pytest.approx(np.ones(200))
    stored = calibration_of_seeds(task, "dev", {3: outputs}, {3: outputs})
    assert stored is not None
    assert stored["seeds"][0]["ece_scaled"] < stored["seeds"][0]["ece"]
    assert sum(point["answers"] for point in stored["curve"]) == 200


def test_the_plane_keeps_distances_of_flat_points() -> None:
    random = np.random.default_rng(1)
    flat = random.normal(size=(12, 2))
    lifted = (flat @ np.linalg.qr(random.normal(size=(6, 6)))[0][:2]).astype(np.float32)
    coordinates, explained = plane(lifted)
    assert explained == pytest.approx(1.0)
    for one, other in ((0, 5), (3, 7)):
        expected = np.linalg.norm(flat[one] - flat[other])
        assert np.linalg.norm(coordinates[one] - coordinates[other]) == pytest.approx(expected, rel=1e-4)
