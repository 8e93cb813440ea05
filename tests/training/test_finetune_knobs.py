"""Options of fine-tuning beyond the papers: R-Drop, a learning rate of the head, another schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from endtask.config import Budget, Settings
from endtask.encoders.weights import load_weights
from endtask.task import Task
from endtask.training import finetune as finetune_module
from endtask.training.budget_plan import measure_cost
from endtask.training.finetune import finetune
from endtask.training.finetune_phase import finetune_phase
from endtask.training.initial_network import network_for
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain import WEIGHTS

from .conftest import CPU, MakeStage, changed
from .test_phase_runner import check_resume

Pretrained = tuple[Path, dict[str, Any]]
MakeFinetune = Callable[..., Phase]
ALL = {
    "rdrop": 1.0,
    "contrastive": 1.0,
    "head_learning_rate": 1e-2,
    "lr_scheduler_type": "warmup_stable_decay",
}


@pytest.fixture
def make(pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings) -> MakeFinetune:
    """A phase of fine-tuning from pre-training's weights, with other settings."""

    def call(**finetuning: Any) -> Phase:
        settings = changed(run_settings, finetune=finetuning)
        network = network_for(task, packed, settings)
        load_weights(pretrained[0] / WEIGHTS, network)
        return finetune_phase(network, task, packed, settings, CPU, seed=0)

    return call


def test_with_every_knob_a_phase_is_resumed_exactly(make: MakeFinetune, tmp_path: Path) -> None:
    settings = {**ALL, "checkpoint_steps": 3}
    check_resume(lambda: replace(make(**settings), steps=8), tmp_path, range(1, 5))


@pytest.mark.parametrize(("knobs", "times"), [({}, 1), ({"rdrop": 1.0}, 2)])
def test_all_that_is_read_is_counted(make: MakeFinetune, knobs: dict[str, float], times: int) -> None:
    phase, plain = make(**knobs), make()
    found, expected = ([*train(one, build_optimizer(one))] for one in (phase, plain))
    assert sum(record.tokens for record in found) == times * sum(record.tokens for record in expected)
    if "rdrop" in knobs:
        assert [record.flops for record in found] == [2 * record.flops for record in expected]
        assert [record.padded_tokens for record in found] == [2 * record.padded_tokens for record in expected]
    costs = [measure_cost(one, Budget.parse("1ktok")).tokens for one in (phase, plain)]
    assert costs[0] == pytest.approx(times * costs[1], rel=0.02)


def test_with_every_knob_nothing_is_compiled_twice(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The encoder once, for two readings; the second seed finds it compiled."""
    graphs: list[int] = []
    counter = CompileCounter()
    compile_module, run = nn.Module.compile, finetune_module.run_stage_phase
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compile_module(self, backend=counter, **options))

    def watched(*arguments: Any, **given: Any) -> Any:
        memory = run(*arguments, **given)
        graphs.append(counter.frame_count)
        return memory

    monkeypatch.setattr(finetune_module, "run_stage_phase", watched)
    torch._dynamo.reset()
    settings = changed(run_settings, compile=True, finetune={**ALL, "epochs": 2})
    finetune(task, packed, pretrained[0], settings, make_stage("finetune"))
    assert graphs == [1, 1]
