"""Learning rates of the heads, against torch's AdamW with explicit groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from endtask.config.training import PhaseSettings
from endtask.training.optimizer import Optimizer, base_rate
from tests.tiny import ARCHITECTURES, make_network

CPU = torch.device("cpu")
RATE = 0.01


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_by_default_all_rates_are_alike(architecture: str) -> None:
    names = [name for name, _ in make_network(architecture).named_parameters()]
    assert {base_rate(name, PhaseSettings(), RATE) for name in names} == {RATE}


def gradients_for(network: nn.Module, step: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(step)
    return {name: torch.randn(weight.shape, generator=random) for name, weight in network.named_parameters()}


def give(network: nn.Module, gradients: dict[str, Tensor]) -> None:
    for name, weight in network.named_parameters():
        weight.grad = gradients[name].clone()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head_rate", [None, 0.3])
def test_steps_equal_torchs_adamw_with_a_group_for_each_parameter(architecture: str, head_rate: float | None) -> None:
    ours, theirs = make_network(architecture), make_network(architecture)
    settings = PhaseSettings(head_learning_rate=head_rate, max_grad_norm=None, weight_decay=0.1)
    optimizer = Optimizer(ours, settings, CPU, learning_rate=RATE)
    groups: list[dict[str, Any]] = [
        {
            "params": [weight],
            "peak": (head_rate or RATE) if name.startswith("heads.task.") else RATE,
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
        Optimizer(make_network(), settings, CPU, learning_rate=RATE)
        for settings in (PhaseSettings(), PhaseSettings(head_learning_rate=0.3))
    )
    assert list(plain.state_tensors()) == list(other.state_tensors())
