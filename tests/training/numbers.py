"""A phase whose batches are numbers: two regressions on a small perceptron, trained in milliseconds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from endtask.config.training import PhaseSettings
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import Loss
from endtask.seeds import derive
from endtask.training.phase import Phase
from endtask.weighting.base import Rule, ScheduledObjective
from endtask.weighting.equal import Equal

_PHASE_FIELDS = {field.name for field in fields(Phase)}


@dataclass(frozen=True)
class Points:
    """Points and what they are to be mapped to: numbers, or classes."""

    inputs: Tensor  # (B, coordinates)
    targets: Tensor  # (B,)

    @property
    def real_tokens(self) -> int:
        return len(self.targets)

    @property
    def padded_tokens(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> Points:
        return Points(self.inputs.to(device), self.targets.to(device))

    def pin(self) -> Points:
        return Points(self.inputs.pin_memory(), self.targets.pin_memory())

    @property
    def form(self) -> Hashable:
        return self.inputs.shape

    def copy_into(self, other: Points) -> None:
        other.inputs.copy_(self.inputs)
        other.targets.copy_(self.targets)


class Regression:
    """Learn a fixed linear function of the points."""

    passes = 1
    replayable = True

    def __init__(self, name: str, size: int = 4) -> None:
        self.name, self._size = name, size
        self.heads: tuple[str, ...] = (name,)

    def batch(self, step: int) -> Points:
        random = torch.Generator().manual_seed(derive(0, self.name, step))
        inputs = torch.randn(self._size, 3, generator=random)
        return Points(inputs, inputs.sum(1) if self.name == "sum" else inputs[:, 0])

    def loss(self, network: TwoLayers, batch: Points) -> Loss:
        found = network.heads[self.name](network.encoder(batch.inputs)).squeeze(1)
        value = (found - batch.targets).square().mean()
        return Loss(value, {"error": value})

    def flops(self, network: TwoLayers, batch: Points) -> float:
        return 100.0 * len(batch.targets)


class TwoLayers(nn.Module):
    """A body and a head for each regression."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 8), nn.Tanh())
        self.heads = nn.ModuleDict({name: nn.Linear(8, 1) for name in ("sum", "first")})


class Learned(Rule):
    """A rule that looks at gradients at every second step: the longer one is turned down, a little each time."""

    def __init__(self) -> None:
        self.weights = {"sum": torch.tensor(0.7), "first": torch.tensor(0.3)}
        self.seen: list[dict[str, Tensor]] = []

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        return tuple(ScheduledObjective(name, 0.5, step) for name in self.weights)

    def sees_gradients(self, step: int) -> bool:
        return step % 2 == 0

    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        self.seen.append({name: gradient.clone() for name, gradient in gradients.items()})
        lengths = {name: gradient.norm() for name, gradient in gradients.items()}
        longest = max(lengths, key=lambda name: float(lengths[name]))
        self.weights = {name: 0.9 * weight if name == longest else weight for name, weight in self.weights.items()}
        return self.weights

    def state(self) -> dict[str, Tensor]:
        return dict(self.weights)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.weights = {name: state[name].clone() for name in self.weights}


def number_phase(**changes: Any) -> Phase:
    """A phase over both regressions; keywords replace its fields or settings."""
    settings = {name: value for name, value in changes.items() if name not in _PHASE_FIELDS}
    phase = Phase(
        network=TwoLayers(),
        objectives={name: Regression(name) for name in ("sum", "first")},
        weighting=Equal("sum", "first"),
        steps=12,
        settings=PhaseSettings.model_validate({"checkpoint_steps": 3, **settings}),
        learning_rate=0.01,
        seed=0,
        context=DeviceContext(torch.device("cpu")),
    )
    return replace(phase, **{name: value for name, value in changes.items() if name in _PHASE_FIELDS})
