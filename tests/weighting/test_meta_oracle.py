"""Learned weights against TARTAN's Algorithm 1 in plain autograd and float64."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from endtask.seeds import derive
from endtask.training.loop import train
from endtask.training.phase import Phase
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta import head as meta_head

from .points import CLASSES, HIDDEN, HeldOutPoints, PlainSteps, PointNetwork, meta_settings, point_phase

RATE = 0.1


def newton_head(features: Tensor, targets: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Ridge regression by its normal equations in the space of the features."""
    wanted = torch.eye(CLASSES, dtype=features.dtype)[targets]
    apart = features - features.mean(0)
    penalty = ridge * apart.square().sum() / len(features) * torch.eye(HIDDEN, dtype=features.dtype)
    weights = torch.linalg.solve(apart.T @ apart + penalty, apart.T @ (CLASSES * (wanted - wanted.mean(0))))
    smoothed = wanted.mean(0) + 0.1 / CLASSES
    return weights, (smoothed / smoothed.sum()).log() - features.mean(0) @ weights


def stepped_head(features: Tensor, targets: Tensor, seed: int) -> list[Tensor]:
    """AdamW written out, from PyTorch's own first weights of linear layers."""
    random = torch.Generator().manual_seed(seed)
    shapes = ((HIDDEN, HIDDEN), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
    bound = HIDDEN**-0.5
    weights = [(2 * bound * torch.rand(shape, generator=random, dtype=torch.float64) - bound) for shape in shapes]
    means, squares = [torch.zeros_like(w) for w in weights], [torch.zeros_like(w) for w in weights]
    for turn in range(1, 11):
        for weight in weights:
            weight.requires_grad_()
        loss = nn.functional.cross_entropy(two_layers(weights, features), targets)
        gradients = torch.autograd.grad(loss, weights)
        for place, gradient in enumerate(gradients):
            means[place] = 0.9 * means[place] + 0.1 * gradient
            squares[place] = 0.999 * squares[place] + 0.001 * gradient**2
            step = means[place] / (1 - 0.9**turn) / ((squares[place] / (1 - 0.999**turn)).sqrt() + 1e-8)
            weights[place] = (weights[place] * (1 - 1e-3 * 0.1) - 1e-3 * step).detach()
    return weights


def two_layers(weights: list[Tensor], features: Tensor) -> Tensor:
    return torch.tanh(features @ weights[0].T + weights[1]) @ weights[2].T + weights[3]


def held_out_gradient(network: PointNetwork, step: int, settings: MetaConfig) -> Tensor:
    """g_meta: the loss of held-out points through a head fitted to others, the encoder's features fixed."""
    source = HeldOutPoints()
    fit, given = source.fit_batch(step), source.gradient_batch(step)
    features = network.encoder(fit.inputs).detach()
    if settings.head == "task":
        outputs = network.heads["task"](network.encoder(given.inputs))
    elif settings.head == "closed_form":
        weights, bias = newton_head(features, fit.targets, meta_head.RIDGE)
        outputs = network.encoder(given.inputs) @ weights + bias
    else:
        fitted = stepped_head(features, fit.targets, derive(0, "meta head", step))
        outputs = two_layers(fitted, network.encoder(given.inputs))
    return flat_gradient(nn.functional.cross_entropy(outputs, given.targets), network)


def flat_gradient(loss: Tensor, network: PointNetwork) -> Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(network.encoder.parameters()))])


def loss_of_step(network: PointNetwork, phase: Phase, name: str, step: int) -> Tensor:
    """The mean over the step's batches, which are of one size."""
    objective, each = phase.objectives[name], phase.accumulation
    batches = [objective.batch(step * each + number) for number in range(each)]
    return torch.stack([objective.loss(network, batch).total for batch in batches]).mean()


def algorithm_1(phase: Phase, settings: MetaConfig) -> tuple[PointNetwork, Tensor, list[Tensor]]:
    """The network, the logits, and the weights of every step."""
    network, names = deepcopy(phase.network), list(phase.objectives)
    logits = torch.full((len(names),), 1 / len(names), dtype=torch.float64)
    history = []
    for step in range(phase.steps):
        gradients, heads = [], []
        for name in names:
            own = list(network.heads[name].parameters())
            heads.append(torch.autograd.grad(loss_of_step(network, phase, name, step), own))
            gradients.append(flat_gradient(loss_of_step(network, phase, name, step), network))
        meta = held_out_gradient(network, step, settings)
        for place, gradient in enumerate(gradients):
            logits[place] += settings.learning_rate * (meta @ gradient) / (meta.norm() * gradient.norm())
        history.append(logits.softmax(0))
        total = sum(alpha * gradient for alpha, gradient in zip(history[-1], gradients, strict=True))
        assert isinstance(total, Tensor)
        with torch.no_grad():
            start = 0
            for weight in network.encoder.parameters():
                weight -= RATE * total[start : start + weight.numel()].view_as(weight)
                start += weight.numel()
            for name, found in zip(names, heads, strict=True):
                for weight, gradient in zip(network.heads[name].parameters(), found, strict=True):
                    weight -= RATE * gradient
    return network, logits, history


@pytest.mark.parametrize(
    ("changes", "ridge"),
    [
        ({"head": "adamw"}, 1.0),
        ({"head": "closed_form"}, 1.0),
        ({"head": "task"}, 1.0),
        ({"head": "closed_form", "learning_rate": 1.0}, 0.01),
    ],
    ids=["paper", "closed form", "same head", "little ridge"],
)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_is_algorithm_1(
    changes: dict[str, Any], ridge: float, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_head, "RIDGE", ridge)
    phase = replace(point_phase(steps=6, **changes), accumulation=accumulation)
    network, logits, history = algorithm_1(phase, meta_settings(**changes))
    records = list(train(phase, PlainSteps(phase.network, RATE)))  # type: ignore[arg-type]
    for name, weight in phase.network.named_parameters():
        assert weight.allclose(network.get_parameter(name), rtol=0, atol=1e-6), name
    assert phase.weighting.state()["logits"].double().allclose(logits, rtol=0, atol=1e-6)
    assert logits.max() - logits.min() > 1e-3  # there is something to see
    for record, weights in zip(records, history, strict=True):
        found = torch.stack([record.losses[f"weight/{name}"] for name in phase.objectives])
        assert found.double().allclose(weights, rtol=0, atol=1e-6)


def test_the_held_out_gradient_leaves_the_network_as_it_was() -> None:
    phase = point_phase()
    before = {name: value.clone() for name, value in phase.network.state_dict().items()}
    phase.network.train()
    phase.weighting._gradient(3)  # type: ignore[attr-defined]
    assert phase.network.training
    assert all(weight.grad is None for weight in phase.network.parameters())
    assert all(value.equal(before[name]) for name, value in phase.network.state_dict().items())
