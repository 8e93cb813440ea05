"""Weights of single texts in masked LM, against single texts through autograd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from endtask.files.stage_folder import StageFolder
from endtask.gradients.losses import masked_lm_losses
from endtask.models.batch import IGNORED, TextBatch
from endtask.models.network import Network
from endtask.models.weights import load_tensors
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.settings import BatchSize, Settings
from endtask.stages import settings_read
from endtask.task import Task
from endtask.train.example_weights import WeighedMaskedLM, direction_for, direction_of, with_weighing
from endtask.train.loop import build_optimizer, train
from endtask.train.plan import measure_cost
from endtask.train.pretrain import WEIGHTS, pretrain, pretrain_phase
from endtask.train.reselect_cost import reading_share
from endtask.weighting.direction import Direction
from endtask.weighting.meta import Meta
from tests.gradients.oracle import flat_gradients
from tests.tiny import by_itself, make_masking, make_network, make_packed, shake

from .conftest import changed
from .test_phase_run import Killed, same, stop_after

OBJECTIVES = {
    "end": {"kind": "task"},
    "tapt": {"kind": "mlm", "texts": "task", "dropout": 0.1},
    "tlm": {"kind": "mlm", "texts": "selection"},
}


def weighed(settings: Settings, **meta: Any) -> Settings:
    given = {"folds": 4, "fold_steps": 3, "fit_batch": 8, "gradient_batch": 6, "every": 2, "example_weights": True}
    train = {"objectives": OBJECTIVES, "weighting": "meta", "meta": {**given, **meta}, "checkpoint_steps": 3}
    return changed(settings, budget="8steps", train=train)


def double_network(architecture: str, *, fixed: bool = False) -> Network:
    network = shake(make_network(architecture, dropout=0.2)).double()
    network.dtype, network.fixed_shapes = torch.float64, fixed
    return network


def with_direction(folder: Path, network: Network, *, seed: int = 3) -> WeighedMaskedLM:
    texts, direction = make_packed(folder), direction_for(network)
    direction.value = torch.randn(direction.value.shape, generator=torch.Generator().manual_seed(seed)).double()
    stream = TextStream("any", texts, network, batch_size=BatchSize.parse("6"), seed=0, masking=make_masking())
    return WeighedMaskedLM("any", stream, network, direction)


def expected_weights(network: Network, batch: TextBatch, direction: Direction) -> Tensor:
    """One text after the other: (real masked positions,)."""
    assert batch.masked_positions is not None
    flat = flat_gradients(network, batch, masked_lm_losses, ("last",))
    products = flat @ direction.value.flatten()
    weights = functional.softplus(products / products.square().mean().sqrt())
    weights = weights[batch.text_ids[batch.masked_positions[: batch.masked]]]
    return weights / weights.mean()


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_weights_are_those_of_single_texts(tmp_path: Path, architecture: str) -> None:
    network = double_network(architecture)
    objective = with_direction(tmp_path, network)
    batch = objective.batch(1)
    found, expected = objective.token_weights(batch), expected_weights(network.eval(), batch, objective.direction)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert float(found.max() / found.min()) > 1.5
    assert found.mean() == pytest.approx(1.0)


def test_the_gradient_is_that_of_the_weighted_losses(tmp_path: Path) -> None:
    network = double_network("lean")
    objective = with_direction(tmp_path, network)
    network.eval()
    batch = by_itself(objective.batch(0))
    weights = expected_weights(network, batch, objective.direction).detach()
    logits = network.masked_logits(network(batch), batch.masked_positions)  # type: ignore[arg-type]
    expected = (weights * functional.cross_entropy(logits, batch.masked_targets, reduction="none")).mean()  # type: ignore[arg-type]
    parameters = list(network.body.parameters())
    loss = objective.loss(network, batch).total
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=0)
    pairs = zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-12)


def test_padding_of_fixed_shapes_has_no_part(tmp_path: Path) -> None:
    free, fixed = (with_direction(tmp_path / str(n), double_network("lean", fixed=bool(n))) for n in range(2))
    fixed._network.fixed_shapes = False  # laid out in a room, and not compiled
    batch = fixed.batch(2)
    assert len(batch.masked_targets) > batch.masked  # type: ignore[arg-type]
    found = fixed.token_weights(batch)
    assert bool((found[batch.masked_targets == IGNORED] == 0).all())
    torch.testing.assert_close(found[: batch.masked], expected_weights(free._network.eval(), batch, fixed.direction))


def test_before_the_first_look_all_texts_count_alike(tmp_path: Path) -> None:
    network = double_network("lean").eval()
    objective = with_direction(tmp_path, network)
    objective.direction.value = torch.zeros_like(objective.direction.value)
    plain, batch = MaskedLM("any", objective.stream), objective.batch(0)
    torch.testing.assert_close(objective.token_weights(batch), torch.ones(batch.masked, dtype=torch.float64))
    torch.testing.assert_close(objective.loss(network, batch).total, plain.loss(network, batch).total)
    assert objective.flops(network, batch) == (1 + reading_share(network)) * plain.flops(network, batch)


@pytest.mark.parametrize("parameters", ["encoder", "body", "last_layers"])
def test_the_direction_is_the_held_out_gradient_of_the_last_look(
    task: Task, packed: Path, run_settings: Settings, parameters: str
) -> None:
    phase = replace(pretrain_phase(task, packed, weighed(run_settings, parameters=parameters, last_layers=1)), steps=4)
    assert isinstance(phase.weighting, Meta)
    direction = direction_of(phase.objectives)
    assert direction is not None
    looks: list[Tensor] = []
    gradient = phase.weighting._gradient
    phase.weighting._gradient = lambda step: looks.append(found := gradient(step).clone()) or found  # type: ignore[assignment, func-returns-value]
    phase.weighting._gradient.parts = gradient.parts  # type: ignore[misc]
    weights = dict(phase.network.body.named_parameters())
    place = list(weights).index("layers.0.attn.Wo.weight")
    for record in train(phase, build_optimizer(phase)):
        sizes = [weight.numel() for weight in weights.values()]
        part = torch.split(looks[-1], sizes)[place]
        assert direction.value.equal(part.view_as(direction.value))
        assert bool(direction.value.any())
        assert len(looks) == (record.step + 1) // 2


def test_learned_from_the_direction_a_run_is_resumed_exactly(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = weighed(run_settings)

    def folder(name: str) -> StageFolder:
        return StageFolder(tmp_path / name, "pretrain", "fingerprint", {}, {})

    unbroken = folder("unbroken")
    counts = pretrain(task, packed, settings, unbroken)
    weights = load_tensors(unbroken.partial / WEIGHTS)[0]
    for checkpoints in (1, 2):
        stopped, again = folder(f"stopped-{checkpoints}"), folder(f"stopped-{checkpoints}")
        monkeypatch.setattr(stopped, "keep_time", stop_after(checkpoints))
        with pytest.raises(Killed):
            pretrain(task, packed, settings, stopped)
        assert pretrain(task, packed, settings, again) == counts
        assert same(load_tensors(again.partial / WEIGHTS)[0], weights)
    plain = folder("plain")
    without = pretrain(task, packed, weighed(run_settings, example_weights=False), plain)
    assert not same(load_tensors(plain.partial / WEIGHTS)[0], weights)
    assert without["tokens"] == counts["tokens"]
    assert without["flops"] < counts["flops"]
    assert without["matmul_flops"] < counts["matmul_flops"]


def test_the_plan_counts_the_readings_that_weigh(task: Task, packed: Path, run_settings: Settings) -> None:
    found = []
    for example_weights in (True, False):
        settings = weighed(run_settings, example_weights=example_weights)
        phase = pretrain_phase(task, packed, settings)
        found.append(with_weighing(measure_cost(phase, settings.budget), phase))
    assert found[0].tokens == found[1].tokens
    assert found[1].flops < found[0].flops < 2 * found[1].flops


def test_off_it_is_no_part_of_the_fingerprint(run_settings: Settings) -> None:
    on, off = (weighed(run_settings, example_weights=value) for value in (True, False))
    assert "example_weights" not in settings_read("pretrain", off)["train"]["meta"]
    assert settings_read("pretrain", on)["train"]["meta"]["example_weights"] is True


def test_the_part_of_the_flat_gradient_is_the_last_layers(tmp_path: Path) -> None:
    network = make_network()
    direction = direction_for(network)
    flat = torch.cat([weight.detach().flatten() for weight in network.body.parameters()])
    assert direction.of(flat).equal(dict(network.body.named_parameters())["layers.1.attn.Wo.weight"])
    assert np.prod(direction.value.shape) == direction.part.stop - direction.part.start
