"""`finetune.fallback: tfidf` saves the linear model where it is better on dev, and keeps the network beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.config import resolve
from endtask.errors import InputError
from endtask.evaluation.baselines import tfidf_baseline
from endtask.export.base import TrainedRun
from endtask.export.linear_folder import better_linear_model
from endtask.io.stage_files import read_manifest
from endtask.pipeline.preflight import preflight
from endtask.records import Example
from endtask.task import Task
from endtask.task.task import read_all

ASK = ("--from", "model", "--set", "finetune.fallback=tfidf")


def test_the_better_model_on_dev_is_saved(own_run: Path, command: Callable[..., Any]) -> None:
    assert command("run", own_run, *ASK).code == 0
    counts = (read_manifest(own_run / "model") or {})["counts"]
    settings = endtask.load(own_run).settings
    assert settings is not None
    task = read_all(settings)
    baseline = tfidf_baseline(task, "macro_f1")
    assert baseline.dev_score > counts["dev"]["macro_f1"]  # six steps teach the network little
    assert (counts["fallback"], counts["fallback_dev"]) == (baseline.description, baseline.dev_score)
    texts = [example.text for example in task.test]
    found = [task.labels.index(answer) for answer in endtask.load(own_run).predict(texts)]
    assert found == baseline.predicted.tolist()
    network = TrainedRun(own_run).model
    assert network == own_run / "model" / "network"
    assert json.loads((network / "config.json").read_text())["model_type"] == "modernbert"
    assert len(endtask.load(network).predict(texts)) == len(texts)


def test_the_network_is_kept_where_it_is_as_good(finished_run: Path) -> None:
    settings = resolve({"finetune": {"fallback": "tfidf"}})
    task = read_all(endtask.load(finished_run).settings)
    assert better_linear_model(task, settings, {"macro_f1": 1.0}) is None
    assert better_linear_model(task, resolve({}), {"macro_f1": 0.0}) is None


def test_taggers_have_no_such_model() -> None:
    rows = [Example(f"r{n}", "a b", ("O", "B-x"), tokens=("a", "b")) for n in range(8)]
    splits = {"train": rows[:6], "dev": rows[6:]}
    task = Task.from_examples("tags", splits, test_fraction=0.0, task_type="token_classification")
    with pytest.raises(InputError, match=r"key 'finetune\.fallback'"):
        preflight(task, resolve({"finetune": {"fallback": "tfidf"}}))
