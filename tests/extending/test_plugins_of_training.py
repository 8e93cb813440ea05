"""Objectives and weightings from users' files: whole runs on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endtask.encoders.weights import load_tensors
from endtask.training.metrics_file import read_metrics
from tests.conftest import Answer
from tests.toy_run import toy_settings, write_toy

HERE = Path(__file__).parent
OBJECTIVE, WEIGHTING = HERE / "plugin_objective.py", HERE / "plugin_weighting.py"


def endtask(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: what is registered there stays there."""
    line = [sys.executable, "-m", "endtask", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


def write_settings(folder: Path, **pretrain: Any) -> Path:
    tree = toy_settings(write_toy(folder / "data"), folder / "run")
    tree["pretrain"] = {**tree.get("pretrain", {}), "max_length": 16, "batch_size": 8, **pretrain}
    path = folder / "settings.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


@pytest.mark.long
def test_an_objective_with_a_head_of_its_own_is_one_file(tmp_path: Path) -> None:
    objectives = {"spans": {"kind": "shuffled_span", "texts": "selection", "share": 0.4}, "task": {"kind": "joint"}}
    settings = write_settings(tmp_path, objectives=objectives, weighting="equal")
    done = endtask("run", settings, "--plugin", OBJECTIVE)
    assert done.returncode == 0, done.stderr
    rows = read_metrics(tmp_path / "run" / "pretrain" / "metrics.jsonl")
    assert all(0 < row["spans/span"] < 3 for row in rows if "spans/span" in row)
    tensors, _ = load_tensors(tmp_path / "run" / "pretrain" / "weights.safetensors")
    assert "heads.shuffled_spans.weight" in tensors
    refused = endtask("run", settings)
    assert refused.returncode == 2
    assert "shuffled_span" in refused.stderr


def test_options_of_an_objective_from_outside_are_checked(tmp_path: Path, command: Callable[..., Answer]) -> None:
    objectives = {"spans": {"kind": "shuffled_span", "texts": "selection", "shar": 0.4}, "task": {"kind": "joint"}}
    settings = write_settings(tmp_path, objectives=objectives, weighting="equal")
    refused = command("run", settings, "--plugin", OBJECTIVE)
    assert refused.code == 2
    assert "pretrain.objectives.spans.shar" in refused.err


@pytest.mark.long
@pytest.mark.parametrize("power", [0, 1])
def test_a_weighting_is_one_file(power: int, tmp_path: Path) -> None:
    settings = write_settings(tmp_path, weighting={"name": "loss_size", "power": power})
    done = endtask("run", settings, "--plugin", WEIGHTING, "--until", "pretrain")
    assert done.returncode == 0, done.stderr
    rows = [row for row in read_metrics(tmp_path / "run" / "pretrain" / "metrics.jsonl") if "weight/task" in row]
    assert rows
    assert all(row["weight/task"] + row["weight/corpus"] == pytest.approx(1) for row in rows)
    assert all((row["weight/task"] == 0.5) == (power == 0) for row in rows)
