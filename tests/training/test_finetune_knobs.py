"""Options of fine-tuning beyond the papers: R-Drop, a rate of the head, an average of weights, a model soup."""

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
from endtask.encoders.weights import load_tensors, load_weights
from endtask.evaluation.outputs import class_probabilities
from endtask.io.run_layout import BEST_WEIGHTS
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training import finetune as finetune_module
from endtask.training.averaging import put_in_mean
from endtask.training.budget_plan import measure_cost
from endtask.training.finetune import finetune
from endtask.training.finetune_phase import finetune_phase
from endtask.training.initial_network import network_for
from endtask.training.loop import build_optimizer, train
from endtask.training.metrics_file import read_metrics
from endtask.training.phase import Phase
from endtask.training.pretrain import WEIGHTS
from tests.evaluation.sklearn_scores import score_all

from .conftest import CPU, MakeStage, changed
from .test_phase_runner import Killed, check_resume

Pretrained = tuple[Path, dict[str, Any]]
MakeFinetune = Callable[..., Phase]
ALL = {
    "rdrop": 1.0,
    "head_learning_rate": 1e-2,
    "average_decay": 0.7,
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


def test_an_average_is_what_is_scored_and_kept(
    pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage
) -> None:
    settings = changed(run_settings, finetune={"average_decay": 0.9, "seeds": [0]})
    stage = make_stage("finetune")
    counts = finetune(task, packed, pretrained[0], settings, stage)
    plain_stage = make_stage("plain")
    finetune(task, packed, pretrained[0], changed(run_settings, finetune={"seeds": [0]}), plain_stage)
    network = network_for(task, packed, settings)
    load_weights(stage.partial / "seed-0" / BEST_WEIGHTS, network)
    dev = class_probabilities(network, PackedTexts(packed / "dev"), batch_size=64, context=CPU)
    scores = score_all(task.label_numbers("dev"), dev.argmax(-1))
    assert scores.items() <= counts["seeds"][0]["dev"].items()
    raw, averaged = (load_tensors(one.partial / "seed-0" / BEST_WEIGHTS)[0] for one in (plain_stage, stage))
    assert any(not value.equal(averaged[name]) for name, value in raw.items())
    curves = [
        [row["task/task"] for row in read_metrics(one.partial / "seed-0" / "metrics.jsonl") if "task/task" in row]
        for one in (plain_stage, stage)
    ]
    assert curves[0] == curves[1], "training itself goes as without"


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
    compile_module, run = nn.Module.compile, finetune_module.run_phase
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compile_module(self, backend=counter, **options))

    def watched(*arguments: Any, **given: Any) -> Any:
        memory = run(*arguments, **given)
        graphs.append(counter.frame_count)
        return memory

    monkeypatch.setattr(finetune_module, "run_phase", watched)
    torch._dynamo.reset()
    settings = changed(run_settings, compile=True, finetune={**ALL, "epochs": 2})
    finetune(task, packed, pretrained[0], settings, make_stage("finetune"))
    assert graphs == [1, 1]


def test_the_mean_of_members_is_scored_and_kept(
    pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, tmp_path: Path
) -> None:
    kept: dict[str, Any] = {}
    settings = changed(run_settings, finetune={"members": 2, "seeds": [0]})

    def look(paths: Any) -> Any:
        kept.update({path.parent.name: load_tensors(path)[0] for path in paths})
        return paths

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune_module, "put_in_mean", lambda network, paths: put_in_mean(network, look(paths)))
        counts = finetune(task, packed, pretrained[0], settings, stage := make_stage("finetune"))
    mean, _ = load_tensors(stage.partial / "seed-0" / "best.safetensors")
    assert kept.keys() == {"member-0", "member-1"}
    for name, value in mean.items():
        expected = (kept["member-0"][name] + kept["member-1"][name]) / 2
        assert torch.allclose(value, expected, atol=1e-7), name
    assert any(not kept["member-0"][name].equal(kept["member-1"][name]) for name in mean)
    assert not list(stage.partial.glob("**/member-*/best.safetensors"))
    plain = finetune(task, packed, pretrained[0], changed(settings, finetune={"members": 1}), make_stage("plain"))
    alone, _ = load_tensors(make_stage("plain").partial / "seed-0" / "best.safetensors")
    assert all(alone[name].equal(value) for name, value in kept["member-0"].items()), "the first is the usual one"
    assert counts["tokens"] == 2 * plain["tokens"]
    assert len(counts["seeds"][0]["dev_of_members"]) == 2


def test_members_go_on_after_a_kill(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = changed(run_settings, finetune={"members": 2, "seeds": [0]})
    finetune(task, packed, pretrained[0], settings, whole := make_stage("whole"))
    original, calls = finetune_module.run_phase, []

    def stop_at_the_second(*given: Any, **options: Any) -> Any:
        calls.append(options["label"])
        if len(calls) == 2:
            raise Killed
        return original(*given, **options)

    monkeypatch.setattr(finetune_module, "run_phase", stop_at_the_second)
    with pytest.raises(Killed):
        finetune(task, packed, pretrained[0], settings, make_stage("killed"))
    finetune(task, packed, pretrained[0], settings, again := make_stage("killed"))
    assert calls == ["finetune seed 0 member 0", "finetune seed 0 member 1", "finetune seed 0 member 1"]
    first, second = (load_tensors(stage.partial / "seed-0" / "best.safetensors")[0] for stage in (whole, again))
    assert all(first[name].equal(value) for name, value in second.items())
