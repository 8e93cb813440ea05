"""Budgets of every unit become a number of steps that is stored before step 1 and never computed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import endtask
from endtask.training import finetune, pretrain, pretrain_plan
from endtask.training import phase_runner as phase_run
from tests.toy_run import toy_settings


def plan_of(stage: Path) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((stage / "manifest.json").read_text())["plan"]
    return plan


FINETUNE = {"max_length": 16, "batch_size": 16, "epochs": 2, "seeds": [0, 1], "budget_share": 0.25}


@pytest.mark.parametrize("budget", ["20steps", "3ktok", "1e8flops", "0.4s"])
def test_a_budget_of_every_unit(toy: Path, tmp_path: Path, budget: str) -> None:
    result = endtask.run(toy_settings(toy, tmp_path / "run", budget=budget, finetune=FINETUNE))
    plan, counts = plan_of(result.folder / "pretrain"), result.stages["pretrain"]
    assert counts["steps"] == (plan["replans"][-1][1] if plan.get("replans") else plan["steps"]) >= 1
    share = {"20steps": 20, "3ktok": 2250, "1e8flops": 7.5e7, "0.4s": 0.3}[budget]
    cost = plan["cost_per_step"]
    if budget == "20steps":
        assert plan["steps"] == share
    elif budget == "3ktok":
        assert plan["steps"] == int(share / cost["tokens"])
        assert counts["tokens"] == pytest.approx(share, rel=0.1)
    elif budget == "1e8flops":
        assert plan["steps"] == max(1, int(share / cost["flops"]))
        assert cost["flops"] == pytest.approx(6 * counts["parameters"] * cost["tokens"])
    else:
        assert plan["steps"] <= max(1, int(share / cost["seconds"])), "what planning took is left out"
    epoch, epochs = 4, 2
    least = 1 if budget == "0.4s" else epoch  # time is kept, however little it is
    assert least <= result.stages["finetune"]["steps_per_seed"] <= epochs * epoch


def test_all_batches_of_a_step_count(toy: Path, tmp_path: Path) -> None:
    train = {"max_length": 16, "batch_size": "64tok", "gradient_accumulation_steps": 4, "batch_ramp_fraction": 0.5}
    result = endtask.run(
        toy_settings(toy, tmp_path / "run", budget="12ktok", pretrain=train, finetune=FINETUNE), until="pretrain"
    )
    counts = result.stages["pretrain"]
    assert counts["tokens"] == pytest.approx(0.75 * 12_000, rel=0.1)
    assert counts["tokens"] / counts["steps"] == pytest.approx(
        plan_of(result.folder / "pretrain")["cost_per_step"]["tokens"], rel=0.1
    )
    assert counts["flops"] == pytest.approx(6 * counts["parameters"] * counts["tokens"])
    assert counts["matmul_flops"] > 0


def test_the_step_count_is_on_disk_before_step_1(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = toy_settings(toy, tmp_path / "run", budget="1s", finetune=FINETUNE)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(phase_run, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        endtask.run(settings)
    written = plan_of(tmp_path / "run" / "pretrain.partial")
    assert written["steps"] >= 1
    assert written["budget"] == "0.75s"


@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
def test_the_step_count_is_kept_on_resume(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    settings = toy_settings(toy, tmp_path / "run", budget="0.5s")
    module = {"pretrain": pretrain, "finetune": finetune}[stage]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def measure_again(*_: object, **__: object) -> None:
        raise AssertionError("measured a second time")

    with monkeypatch.context() as patch:
        patch.setattr(module, "run_stage_phase", stop)
        with pytest.raises(KeyboardInterrupt):
            endtask.run(settings)
    written = plan_of(tmp_path / "run" / f"{stage}.partial")
    monkeypatch.setattr(pretrain_plan if stage == "pretrain" else finetune, "measure_cost", measure_again)
    endtask.run(settings, until=stage)
    assert written.items() <= plan_of(tmp_path / "run" / stage).items()
