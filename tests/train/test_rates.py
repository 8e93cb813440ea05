"""Rates by layer and head: factors for every architecture, and steps against torch's AdamW with groups by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from endtask.settings.training import PhaseSettings
from endtask.train.muon import Muon
from endtask.train.optimizer import build_optimizer
from endtask.train.rates import base_rate, layer_factors
from tests.tiny import ARCHITECTURES, make_network

CPU = torch.device("cpu")
GO = torch.tensor(False)
RATE, DECAY = 0.01, 0.5


def depth(name: str) -> int:
    """How many layers lie above a parameter of a network of two layers, by what its name holds."""
    if ".embeddings." in name:
        return 2
    return 1 if ".layers.0." in name or ".layer.0." in name else 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lower_layers_have_lower_rates_in_every_architecture(architecture: str) -> None:
    names = [name for name, _ in make_network(architecture, tlm_head=True).named_parameters()]
    factors = layer_factors(names, DECAY)
    assert factors == {name: DECAY ** depth(name) for name in names}
    assert {factors[name] for name in names} == {0.25, 0.5, 1.0}
    assert {factors[name] for name in names if name.startswith("heads.")} == {1.0}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_by_default_all_rates_are_alike(architecture: str) -> None:
    names = [name for name, _ in make_network(architecture).named_parameters()]
    assert set(layer_factors(names, 1.0).values()) == {1.0}
    assert {base_rate(name, PhaseSettings(), RATE) for name in names} == {RATE}


def test_layers_beyond_the_ninth_keep_their_order() -> None:
    names = [f"body.encoder.layer.{number}.output.dense.weight" for number in range(12)]
    assert list(layer_factors(names, DECAY).values()) == [DECAY**above for above in reversed(range(12))]


def test_a_network_without_layers_has_one_rate() -> None:
    assert layer_factors(["body.0.weight", "heads.sum.weight"], DECAY) == {
        "body.0.weight": 1.0,
        "heads.sum.weight": 1.0,
    }


def gradients_for(network: nn.Module, step: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(step)
    return {name: torch.randn(weight.shape, generator=random) for name, weight in network.named_parameters()}


def give(network: nn.Module, gradients: dict[str, Tensor]) -> None:
    for name, weight in network.named_parameters():
        weight.grad = gradients[name].clone()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head_rate", [None, 0.3])
@pytest.mark.parametrize("layer_decay", [1.0, DECAY])
def test_steps_equal_torchs_adamw_with_a_group_for_each_parameter(
    architecture: str, head_rate: float | None, layer_decay: float
) -> None:
    ours, theirs = make_network(architecture), make_network(architecture)
    settings = PhaseSettings(head_learning_rate=head_rate, max_grad_norm=None, weight_decay=0.1)
    optimizer = build_optimizer(ours, settings, CPU, learning_rate=RATE, layer_decay=layer_decay)
    groups: list[dict[str, Any]] = [
        {
            "params": [weight],
            "peak": (head_rate or RATE) if name.startswith("heads.") else RATE * layer_decay ** depth(name),
            "weight_decay": 0.1 if weight.ndim >= 2 else 0.0,
        }
        for name, weight in theirs.named_parameters()
    ]
    oracle = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-6, foreach=False)
    for step, factor in enumerate((0.5, 1.0, 0.25)):
        gradients = gradients_for(ours, step)
        give(ours, gradients)
        give(theirs, gradients)
        for group in oracle.param_groups:
            group["lr"] = group["peak"] * factor
        optimizer.step(factor)
        oracle.step()
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name), weight, rtol=1e-5, atol=1e-6, msg=name)


def test_the_state_has_the_same_names_whatever_the_rates() -> None:
    plain, other = (
        build_optimizer(make_network(), settings, CPU, learning_rate=RATE, layer_decay=decay)
        for settings, decay in ((PhaseSettings(), 1.0), (PhaseSettings(head_learning_rate=0.3), DECAY))
    )
    assert list(plain.state_tensors()) == list(other.state_tensors())


def test_muons_rates_fall_by_layer_too() -> None:
    ours, theirs = make_network(), make_network()
    settings = PhaseSettings(optimizer="muon", muon_learning_rate=0.02, max_grad_norm=None, weight_decay=0.1)
    optimizer = build_optimizer(ours, settings, CPU, learning_rate=RATE, layer_decay=DECAY)
    gradients = gradients_for(ours, 0)
    give(ours, gradients)
    give(theirs, gradients)
    optimizer.step(0.5)
    for number in range(2):
        matrices = {
            name: weight
            for name, weight in theirs.named_parameters()
            if f"body.layers.{number}." in name and weight.ndim == 2
        }
        assert len(matrices) == 4
        Muon(matrices, weight_decay=0.1).step(0.5 * 0.02 * DECAY ** (1 - number), divisor=None, skipped=GO)
        for name, weight in matrices.items():
            torch.testing.assert_close(ours.get_parameter(name), weight, rtol=1e-5, atol=1e-7, msg=name)
