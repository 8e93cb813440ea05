"""A metric from a user's file: it decides on dev, and appears in reports, tests and intervals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.evaluation.task_metrics import Measure
from endtask.registry import load_plugin
from tests.toy_run import toy_settings, write_toy

PLUGIN = Path(__file__).with_name("plugin_metric.py")


@pytest.fixture(autouse=True)
def _plugin() -> None:
    load_plugin(PLUGIN)


def test_by_default_it_is_accuracy_in_every_test_and_interval() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 30)
    first, second = (np.where(random.random((2, 30)) < right, truth, 0) for right in (0.9, 0.5))
    own, known = Measure("cheapness"), Measure("accuracy")
    assert own.score(truth, first[0]) == pytest.approx(known.score(truth, first[0]))
    p_values = [metric_permutation(first, second, truth, measure, permutations=200) for measure in (own, known)]
    assert p_values[0] == pytest.approx(p_values[1])
    intervals = [bootstrap_interval(first, second, truth, measure, samples=64) for measure in (own, known)]
    assert intervals[0] == pytest.approx(intervals[1])


@pytest.mark.long
def test_it_decides_a_run_with_its_option(tmp_path: Path) -> None:
    evaluate = {"metric": "cheapness", "missed": 0.5}
    tree = toy_settings(write_toy(tmp_path), tmp_path / "run", evaluate=evaluate)
    (tmp_path / "settings.json").write_text(json.dumps(tree))
    command = [sys.executable, "-m", "endtask", "run", str(tmp_path / "settings.json")]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "evaluate" / "results.json").read_text())
    assert results["summary"]["metric"] == "cheapness"
    row = results["seeds"][0]["scores"]
    assert row["accuracy"] <= row["cheapness"] <= 1
