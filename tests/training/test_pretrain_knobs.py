"""Options of pre-training beyond the papers: a changing mix, a schedule, a rate of the heads, a seed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.io.stage_folder import StageFolder
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training import pretrain as pretrain_module
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS, pretrain
from endtask.weighting.interleave import AnnealedInterleave

from .conftest import MakeStage, changed
from .test_phase_runner import Killed, same, stop_after

Turns = list[str]


@pytest.fixture
def turns_of(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Turns]:
    """Run pre-training up to its training, and say whose turn each step is."""
    numbers = count()

    def call(budget: str, **training: Any) -> Turns:
        found: Turns = []

        def look(phase: Any, *given: Any, **options: Any) -> Any:
            found.extend(phase.weighting.schedule(step)[0].objective for step in range(phase.steps))
            raise Killed

        monkeypatch.setattr(pretrain_module, "run_stage_phase", look)
        settings = changed(
            run_settings, budget=budget, pretrain={"weighting": training}, finetune={"budget_share": 0.25}
        )
        with pytest.raises(Killed):
            pretrain(task, packed, settings, make_stage(f"pretrain-{next(numbers)}"))
        return found

    return call


def test_the_share_of_task_batches_moves_to_its_last_value(turns_of: Callable[..., Turns]) -> None:
    schedule = turns_of("400steps", rho1=9, rho1_end=1)
    assert len(schedule) == 400
    quarters = [schedule[start : start + 100].count("task") for start in range(0, 400, 100)]
    assert quarters == pytest.approx([15, 25, 35, 45], abs=1)


def test_an_automatic_rho1_may_end_elsewhere(turns_of: Callable[..., Turns]) -> None:
    """32 rows ask for 99 corpus batches per task batch, 400 steps for no more than 3."""
    schedule = turns_of("400steps", rho1="auto", rho1_end=0)
    rule = AnnealedInterleave("corpus", "task", 3, 0, 400)
    assert schedule == [rule.schedule(step)[0].objective for step in range(400)]
    assert schedule[-20:].count("task") >= 19


def test_a_plan_counts_the_mean_of_the_mix(turns_of: Callable[..., Turns], packed: Path) -> None:
    plain, annealed = turns_of("30ktok", rho1=1), turns_of("30ktok", rho1=1, rho1_end=1)
    assert plain == annealed
    more = turns_of("30ktok", rho1=9, rho1_end=0)
    lengths = {name: PackedTexts(packed / name).lengths.mean() for name in ("selection", "task")}
    read = sum(8 * lengths["selection" if name == "corpus" else name] for name in more)
    assert read == pytest.approx(0.75 * 30_000, rel=0.05), "pre-training's part of the budget"


def test_steps_that_end_before_the_first_task_batch_are_warned_of(
    turns_of: Callable[..., Turns], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "task" not in turns_of("5steps", rho1=99, rho1_end=40)
    assert "5 steps end before the first task batch (pretrain.weighting.rho1 is 99)" in capsys.readouterr().err
    assert "task" in turns_of("5steps", rho1=99, rho1_end=0)
    assert "end before the first task batch" not in capsys.readouterr().err


KNOBS = {
    "weighting": {"rho1": 3, "rho1_end": 1},
    "lr_scheduler_type": "warmup_stable_decay",
    "head_learning_rate": 1e-2,
    "seed": 7,
    "eval_steps": 5,
}


def test_with_every_knob_stage_1_is_resumed_exactly(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(run_settings, budget="16steps", pretrain={**KNOBS, "checkpoint_steps": 3})

    def folder(name: str) -> StageFolder:
        return StageFolder(tmp_path / name, "pretrain", "fingerprint", {}, {})

    unbroken = folder("unbroken")
    counts = pretrain(task, packed, settings, unbroken)
    weights = load_tensors(unbroken.partial / WEIGHTS)[0]
    for checkpoints in (1, 3, 5):
        stopped, again = folder(f"stopped-{checkpoints}"), folder(f"stopped-{checkpoints}")
        monkeypatch.setattr(stopped, "save_time", stop_after(checkpoints))
        with pytest.raises(Killed):
            pretrain(task, packed, settings, stopped)
        assert pretrain(task, packed, settings, again) == counts
        assert same(load_tensors(again.partial / WEIGHTS)[0], weights)
        assert same(
            load_tensors(again.partial / BEST_PRETRAINED)[0], load_tensors(unbroken.partial / BEST_PRETRAINED)[0]
        )
