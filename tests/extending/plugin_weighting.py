"""A user's weighting in one file: objectives with larger losses have smaller weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from endtask.weighting.base import PartConfig, Rule, ScheduledObjective, Weighting, WeightingContext, weightings


@weightings.register("loss_size")
class LossSize(Weighting):
    """all objectives at each step, those of a large loss with a small weight"""

    class Config(PartConfig):
        """How much the size of the loss counts."""

        power: float = Field(1.0, ge=0, description="weights are proportional to loss^-power; 0: all alike")

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule over the objectives that have text."""
        return ByLossSize(run.objectives, self.config.power)


class ByLossSize(Rule):
    """Weights in proportion to loss^-power, at each step."""

    def __init__(self, names: tuple[str, ...], power: float) -> None:
        self._names, self._power = names, power
        self._sizes: dict[str, Tensor] = {}

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives."""
        return tuple(ScheduledObjective(name, 1 / len(self._names), step) for name in self._names)

    def sees_gradients(self, step: int) -> bool:
        """Always: weights are set at every step."""
        return True

    def observe_losses(self, step: int, losses: Mapping[str, Tensor]) -> None:
        """Add up the parts of each objective's loss."""
        self._sizes = {
            name: torch.stack([value for key, value in losses.items() if key.startswith(f"{name}/")]).sum()
            for name in self._names
        }

    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights, which add up to one."""
        return self._weights()

    def values(self) -> dict[str, Tensor]:
        """Return the weights for the curves."""
        return {f"weight/{name}": value for name, value in self._weights().items()}

    def _weights(self) -> dict[str, Tensor]:
        raw = torch.stack([self._sizes[name] for name in self._names]).clamp(min=1e-6) ** -self._power
        return dict(zip(self._names, raw / raw.sum(), strict=True))
