"""Scores over seeds with leak-free scores, and the files of the evaluate stage."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

from endtask.config import Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.weights import save_weights
from endtask.evaluation.evaluate import evaluate, mean_and_spread, score_seeds
from endtask.evaluation.outputs import Answered
from endtask.evaluation.task_metrics import Measure
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packed_texts import pack_examples
from tests.tiny import LABELS, MAX_LENGTH, make_network, make_texts, make_tokenizer


def rows(name: str, texts: list[str]) -> list[Example]:
    return [Example(f"{name}-{row}", text, LABELS[row % len(LABELS)]) for row, text in enumerate(texts)]


def task_with_leaks() -> Task:
    """Test rows 0 and 4 stand in train, the second of them only after marks and case are away."""
    test = ["river stone", "cloud", "green apple", "candle", "Window [[ Silver ]]!", "garden"]
    train = ["river stone", "mountain", "window silver", "paper", "letter", "music"]
    splits = {"train": rows("train", train), "dev": rows("dev", make_texts(6)), "test": rows("test", test)}
    return Task.from_examples("leaky", splits)


def certain(classes: list[int]) -> Answered:
    """Probabilities that leave no doubt."""
    return Answered(np.asarray(classes), np.eye(len(LABELS), dtype=np.float32)[classes])


def test_whole_and_leak_free_scores_of_every_seed() -> None:
    truth = [0, 1, 2, 0, 1, 2]
    found = {7: certain(truth), 3: certain([0, 0, 0, 0, 1, 0])}
    results = score_seeds(task_with_leaks(), "test", found, Measure("accuracy"))
    assert (results["split"], results["rows"], results["leak_free_rows"]) == ("test", 6, 4)
    perfect, poor = results["seeds"]
    assert (perfect["seed"], poor["seed"]) == (7, 3)
    assert perfect["scores"]["accuracy"] == perfect["leak_free_scores"]["accuracy"] == 1.0
    assert poor["scores"]["accuracy"] == pytest.approx(3 / 6)
    assert poor["leak_free_scores"]["accuracy"] == pytest.approx(1 / 4), "rows 0 and 4 are left out"
    summary = results["summary"]
    assert summary["metric"] == "accuracy"
    assert summary["mean"] == pytest.approx(0.75)
    assert summary["leak_free_mean"] == pytest.approx(0.625)
    assert summary["leak_free_std"] == pytest.approx(statistics.stdev([1.0, 0.25]))


def test_a_split_that_stands_in_train_altogether_has_no_leak_free_score() -> None:
    texts = make_texts(6)
    splits = {"train": rows("train", texts), "dev": rows("dev", make_texts(6, seed=1)), "test": rows("test", texts)}
    results = score_seeds(Task.from_examples("copy", splits), "test", {0: certain([0] * 6)}, Measure("macro_f1"))
    assert results["leak_free_rows"] == 0
    assert "leak_free_mean" not in results["summary"]
    assert "leak_free_scores" not in results["seeds"][0]


@pytest.mark.parametrize(
    ("values", "mean", "spread"), [([0.5], 0.5, 0.0), ([0.0, 1.0], 0.5, 0.5**0.5), ([0.25, 0.25, 0.25], 0.25, 0.0)]
)
def test_mean_and_sample_deviation(values: list[float], mean: float, spread: float) -> None:
    assert mean_and_spread("dev_", values) == pytest.approx({"dev_mean": mean, "dev_std": spread})


def run_stage(task: Task, folder: Path, seeds: tuple[int, ...] = (0, 1)) -> dict[str, object]:
    weights = {}
    for seed in seeds:
        weights[seed] = folder / f"{seed}.safetensors"
        save_weights(weights[seed], make_network(seed=seed))
    for split, examples in task.splits.items():
        pack_examples([(example.text, None) for example in examples], make_tokenizer(), MAX_LENGTH, folder / split)
    settings = Settings.model_validate({"evaluate": {"metric": "accuracy"}, "finetune": {"max_length": MAX_LENGTH}})
    context = DeviceContext(torch.device("cpu"))
    return evaluate(task, folder, weights, make_network(seed=9), settings, folder, context, read=folder)


def test_the_stage_writes_results_and_predictions(tmp_path: Path) -> None:
    task = task_with_leaks()
    counts = run_stage(task, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [(line["id"], line["label"]) for line in lines] == [(example.id, example.label) for example in task.test]
    for row in results["seeds"]:
        right = [line["predicted"][str(row["seed"])] == line["label"] for line in lines]
        assert row["scores"]["accuracy"] == pytest.approx(sum(right) / len(right))
    given = {"split": "test", "rows": 6, "leak_free_rows": 4, "baselines": results["baselines"]}
    assert counts == {**given, **results["summary"]}


def test_each_seed_is_scored_with_its_own_weights(tmp_path: Path) -> None:
    run_stage(task_with_leaks(), tmp_path, seeds=(0, 1, 2))
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    answers = {seed: tuple(line["predicted"][seed] for line in lines) for seed in ("0", "1", "2")}
    assert len(set(answers.values())) > 1


def test_without_a_test_split_dev_is_scored(tmp_path: Path) -> None:
    splits = {"train": rows("train", make_texts(9)), "dev": rows("dev", make_texts(6, seed=1))}
    counts = run_stage(Task.from_examples("no test", splits, test_fraction=0.0), tmp_path, seeds=(0,))
    assert (counts["split"], counts["rows"]) == ("dev", 6)
