"""A task and other objectives on points in the plane, small enough for plain autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from endtask.config.training import PhaseSettings
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import Loss
from endtask.seeds import derive
from endtask.training.optimizer import StepOutcome
from endtask.training.phase import Phase
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient
from endtask.weighting.meta.head import Classes
from endtask.weighting.meta.rule import Meta
from tests.training.numbers import Points

CPU = torch.device("cpu")
INPUTS, HIDDEN, CLASSES = 5, 6, 3


class PointNetwork(nn.Module):
    """A body of two layers, and a head for every objective."""

    def __init__(self, names: tuple[str, ...], *, seed: int = 0, hidden: int = HIDDEN) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(INPUTS, hidden), nn.Tanh(), nn.Dropout(0.5), nn.Linear(hidden, hidden))
        self.encoder[2].p = 0.0
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, CLASSES) for name in names})


def draw(name: str, step: int, size: int = 8) -> Points:
    """Points of a step; each objective has its own rule for their classes."""
    random = torch.Generator().manual_seed(derive(0, name, step))
    inputs = torch.randn(size, INPUTS, generator=random, dtype=torch.float64)
    rule = torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(derive(0, name)), dtype=torch.float64)
    return Points(inputs, (inputs @ rule).argmax(-1))


class PointClasses:
    """Learn the classes of points."""

    passes = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.heads: tuple[str, ...] = (name,)
        self.read: list[int] = []

    def batch(self, step: int) -> Points:
        self.read.append(step)
        return draw(self.name, step)

    def loss(self, network: PointNetwork, batch: Points) -> Loss:
        outputs = network.heads[self.name](network.encoder(batch.inputs.to(network.heads[self.name].weight.dtype)))
        value = nn.functional.cross_entropy(outputs, batch.targets)
        return Loss(value, {"task": value})

    def flops(self, network: PointNetwork, batch: Points) -> float:
        return 1.0


class HeldOutPoints:
    """More points of the task."""

    head_task = Classes(CLASSES)

    def fit_batch(self, step: int) -> Points:
        return draw("task", 1000 + step, 12)

    def gradient_batch(self, step: int) -> Points:
        return draw("task", 2000 + step, 10)

    def features(self, network: PointNetwork, batch: Points) -> Tensor:
        features: Tensor = network.encoder(batch.inputs.to(network.encoder[0].weight.dtype))
        return features

    def task_outputs(self, network: PointNetwork, batch: Points) -> Tensor:
        outputs: Tensor = network.heads["task"](self.features(network, batch))
        return outputs

    def targets(self, batch: Points) -> Tensor:
        return batch.targets


class PlainSteps:
    """Gradient descent in any precision, where a step may be declared broken."""

    rate_scale = 1.0

    def __init__(self, network: nn.Module, rate: float, broken: frozenset[int] = frozenset()) -> None:
        self._network, self._rate, self._broken, self._steps = network, rate, broken, 0

    @torch.no_grad()
    def step(self, factor: float) -> StepOutcome:
        skipped = self._steps in self._broken
        self._steps += 1
        for weight in self._network.parameters():
            if weight.grad is not None and not skipped:
                weight -= self._rate * weight.grad
            weight.grad = None
        return StepOutcome(torch.tensor(1.0), torch.tensor(skipped))


def meta_settings(**changes: Any) -> MetaConfig:
    """The paper's rule; keywords change it."""
    paper = {"every": 1, "floor": 0.0, "parameters": "all", "learning_rate": 0.1}
    return MetaConfig.model_validate({**paper, **changes})


def point_phase(
    names: tuple[str, ...] = ("task", "one", "two"),
    *,
    steps: int = 5,
    network: PointNetwork | None = None,
    **changes: Any,
) -> Phase:
    """A phase with learned weights, in float64; keywords change the rule."""
    network = (network or PointNetwork(names)).double()
    settings = meta_settings(**changes)
    context = DeviceContext(CPU)
    gradient = HeldOutGradient(network, HeldOutPoints(), settings=settings, context=context, seed=0)
    return Phase(
        network=network,
        objectives={name: PointClasses(name) for name in names},
        weighting=Meta(names, gradient, settings=settings, device=CPU),
        steps=steps,
        settings=PhaseSettings(),
        learning_rate=0.1,
        seed=0,
        context=context,
    )
