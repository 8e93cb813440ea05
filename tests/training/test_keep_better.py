"""Fine-tuning that may end with the initial weights: the better of before and after on dev."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.io.run_layout import BEST_WEIGHTS
from endtask.reporting.costs import stage_summary
from endtask.task import Task
from endtask.training import phase_runner as phase_run
from endtask.training.finetune import finetune
from endtask.training.metrics_file import read_metrics
from endtask.training.pretrain import WEIGHTS

from .conftest import MakeStage, changed, pretrained_in

KEEP = {"head": "pretrained", "keep_better": True, "seeds": [0], "epochs": 2}


def test_harmful_fine_tuning_leaves_stage_1s_model(
    pretrained: tuple[Path, dict[str, Any]], task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage
) -> None:
    settings = changed(run_settings, finetune={**KEEP, "learning_rate": 1e-9})
    stage = make_stage("finetune")
    counts = finetune(task, packed, pretrained[0], settings, stage)
    (result,) = counts["seeds"]
    folder = stage.partial / "seed-0"
    assert result["best_step"] == 0, "a score that is not better does not count"
    kept, before = load_tensors(folder / BEST_WEIGHTS)[0], load_tensors(pretrained[0] / WEIGHTS)[0]
    assert all(kept[name].equal(value) for name, value in before.items())
    rows = [row["step"] for row in read_metrics(folder / "metrics.jsonl") if "dev/accuracy" in row]
    assert rows == [0, 4, 8]
    told = "1 seed of 8 steps; fine-tuning did not help on dev: the model has the weights before it (1 of 1 seeds)"
    assert stage_summary("finetune", counts) == told


def test_useful_fine_tuning_is_kept(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, tmp_path: Path
) -> None:
    little, _ = pretrained_in(tmp_path, task, packed, changed(run_settings, budget="2steps"))
    settings = changed(run_settings, finetune={**KEEP, "learning_rate": 1e-2, "epochs": 12}, model={"dropout": 0.0})
    stage = make_stage("finetune")
    counts = finetune(task, packed, little, settings, stage)
    (result,) = counts["seeds"]
    rows = [row for row in read_metrics(stage.partial / "seed-0" / "metrics.jsonl") if "dev/macro_f1" in row]
    assert result["best_step"] > 0
    assert result["dev"]["macro_f1"] == max(row["dev/macro_f1"] for row in rows) > rows[0]["dev/macro_f1"]
    helped = "fine-tuning helped on dev: the model has the weights after it (1 of 1 seeds)"
    assert stage_summary("finetune", counts).endswith(helped)


def test_killed_before_the_first_checkpoint_it_is_scored_once_in_the_curves(
    pretrained: tuple[Path, dict[str, Any]],
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = changed(run_settings, finetune={**KEEP, "learning_rate": 1e-9})

    def killed(memory: Any, record: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(phase_run, "_count", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(task, packed, pretrained[0], settings, make_stage("finetune"))
    stage = make_stage("finetune")
    finetune(task, packed, pretrained[0], settings, stage)
    rows = [row["step"] for row in read_metrics(stage.partial / "seed-0" / "metrics.jsonl") if "dev/accuracy" in row]
    assert rows == [0, 4, 8]
