"""The baselines of every run: chosen by the metric on dev, scored and tested as `endtask compare` does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from endtask.evaluation import run_baselines
from endtask.evaluation.baselines import majority_baseline, tfidf_baseline
from endtask.evaluation.run_baselines import compare_with_baselines, write_baselines
from endtask.evaluation.significance import metric_permutation
from endtask.evaluation.task_metrics import Measure
from endtask.io.run_layout import BASELINES
from endtask.records import Example
from endtask.task import Task
from endtask.task.split import group_numbers
from endtask.task.targets import targets

WORDS = {"fruit": ("apple", "pear", "plum"), "tool": ("saw", "axe", "file")}


def easy_task(rows: int = 60, **options: object) -> Task:
    """A task whose labels follow from one word, with noise in a fifth of the rows."""
    random = np.random.default_rng(0)
    examples = []
    for index in range(rows):
        label = ("fruit", "tool")[index % 2]
        word = random.choice(WORDS[label if random.random() > 0.2 else "tool"])
        noise = " ".join(random.choice(["one", "two", "three", "four"], size=4))
        examples.append(Example(f"row-{index}", f"{noise} {word} {index}", label))
    splits = {"train": examples[: rows // 2], "dev": examples[rows // 2 : -rows // 4], "test": examples[-rows // 4 :]}
    return Task.from_examples("easy", splits, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_it_is_the_baseline_of_comparisons(metric: str, tmp_path: Path) -> None:
    task, measure = easy_task(), Measure(metric)
    write_baselines(task, "test", tmp_path)
    assert len(json.loads((tmp_path / BASELINES).read_text())["linear"]) == 3
    truth = targets(task, "test")
    runs = np.stack([truth, 1 - truth, truth])
    found = compare_with_baselines(task, "test", runs, measure, tmp_path)
    for name, baseline in (("majority", majority_baseline(task, measure)), ("tfidf", tfidf_baseline(task, measure))):
        score = measure.score(truth, baseline.predicted)
        assert found[name]["score"] == score
        assert found[name]["description"] == baseline.description
        mean = np.mean([measure.score(truth, run) for run in runs])
        assert found[name]["difference"] == pytest.approx(mean - score)
        groups = group_numbers(task.test)
        p_value = metric_permutation(runs, baseline.predicted, truth, measure, groups=groups, permutations=2_000)
        assert found[name]["p_value"] == p_value
        low, high = found[name]["interval"]
        assert low <= found[name]["difference"] <= high
    assert found["interval"][0] <= np.mean([measure.score(truth, run) for run in runs]) <= found["interval"][1]


def test_numbers_tags_and_label_sets_have_baselines_too(tmp_path: Path) -> None:
    rows = [Example(f"{n}", f"word{n % 3} text {n}", float(n % 3)) for n in range(40)]
    task = Task.from_examples("numbers", {"train": rows}, task_type="regression")
    write_baselines(task, "test", tmp_path)
    truth = targets(task, "test")
    found = compare_with_baselines(task, "test", truth[None], Measure("pearson", "regression"), tmp_path)
    assert found["tfidf"]["score"] > 0.5 > found["majority"]["score"]


@pytest.mark.parametrize("reason", ["too large", "not fitted"])
def test_a_task_without_linear_models_has_a_majority_alone(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(task_type: object, task: Task) -> None:
        raise ValueError("empty vocabulary")

    task = easy_task()
    if reason == "too large":
        monkeypatch.setattr(run_baselines, "MOST_CHARACTERS", 10)
    else:
        monkeypatch.setattr(type(task.task_type), "linear_models", broken)
    write_baselines(task, "test", tmp_path)
    stored = json.loads((tmp_path / BASELINES).read_text())
    assert stored["linear"] == []
    assert stored["note"].startswith("no TF-IDF baseline: ")
    found = compare_with_baselines(task, "test", targets(task, "test")[None], Measure("accuracy"), tmp_path)
    assert 0 < found["majority"]["score"] < 1
    assert "tfidf" not in found


def test_a_run_without_stored_baselines_has_its_interval(tmp_path: Path) -> None:
    task = easy_task()
    found = compare_with_baselines(task, "test", targets(task, "test")[None], Measure("accuracy"), tmp_path)
    assert found == {"interval": [1.0, 1.0]}
