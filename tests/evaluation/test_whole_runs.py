"""Settings of fine-tuning in later stages: scores, model, report and predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.encoders.weights import load_tensors
from endtask.serving.predictor import load
from tests.toy_run import toy_settings


def redo(toy: Path, run: Path, finetune: dict[str, Any], **root: Any) -> dict[str, Any]:
    """Fine-tune a finished run again with other settings; returns the scores."""
    common = {"max_length": 16, "batch_size": 16, "epochs": 2, "checkpoint_steps": 3}
    endtask.run(toy_settings(toy, run, finetune={**common, **finetune}, **root), start="finetune")
    results: dict[str, Any] = json.loads((run / "evaluate" / "results.json").read_text())
    return results


def test_of_several_rates_the_best_is_scored_and_saved(toy: Path, own_run: Path) -> None:
    results = redo(toy, own_run, {"learning_rate": [1e-6, 1e-2], "seeds": [0, 1]})
    counts = json.loads((own_run / "finetune" / "manifest.json").read_text())["counts"]
    assert counts["learning_rate"] == 1e-2
    assert [row["seed"] for row in results["seeds"]] == [0, 1]
    alone = redo(toy, own_run, {"learning_rate": 1e-2, "seeds": [0, 1]})
    assert alone == results
    assert "seed 0" in (own_run / "report.html").read_text(encoding="utf-8")


def test_without_stage_2_everything_after_it_works(toy: Path, own_run: Path) -> None:
    results = redo(toy, own_run, {"seeds": [4, 5]}, skip_finetuning=True)
    assert [row["seed"] for row in results["seeds"]] == [4]
    assert results["summary"]["std"] == 0.0
    assert not (own_run / "finetune" / "seed-5").exists()
    stage_1, _ = load_tensors(own_run / "pretrain" / "weights.safetensors")
    model, _ = load_tensors(own_run / "model" / "model.safetensors")
    assert any(
        value.equal(stage_1[name]) for name in stage_1 if name.startswith("heads.task") for value in model.values()
    )
    assert "no fine-tuning" in (own_run / "model" / "README.md").read_text(encoding="utf-8")
    assert (own_run / "report.html").stat().st_size > 1000
    lines = (own_run / "evaluate" / "predictions.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in (own_run / "read" / "test.jsonl").read_text().splitlines()]
    answers = [one.label for one in load(own_run).predict(texts)]
    assert answers == [json.loads(line)["predicted"]["4"] for line in lines]


@pytest.mark.parametrize("settings", [{"rdrop": 1.0}, {"head": "pretrained", "batch_size": "64tok"}])
def test_other_settings_reach_a_score(toy: Path, own_run: Path, settings: dict[str, Any]) -> None:
    results = redo(toy, own_run, {"seeds": [0], "max_steps": 3, **settings})
    assert results["rows"] == 18
    assert 0.0 <= results["summary"]["mean"] <= 1.0
