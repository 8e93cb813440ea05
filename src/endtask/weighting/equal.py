"""Every objective at every step, with the same weight (MT-TARTAN) or given ones; with one objective, plain training."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.weighting.base import Rule, ScheduledObjective, Weighting, WeightingContext, weightings


@weightings.register("equal")
class EqualWeighting(Weighting):
    """all objectives at each step, by their weights (MT-TARTAN)"""

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule."""
        return Equal(*run.objectives, weights=run.weights)


class Equal(Rule):
    """Weights that add up to one: uniform, or in the given proportions.

    >>> Equal("a", "b").schedule(3)
    (ScheduledObjective(objective='a', weight=0.5, step=3), ScheduledObjective(objective='b', weight=0.5, step=3))
    >>> [item.weight for item in Equal("a", "b", weights=(3, 1)).schedule(0)]
    [0.75, 0.25]
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        given = [1.0] * len(objectives) if weights is None else list(weights)
        if len(given) != len(objectives) or min(given) < 0 or sum(given) <= 0:
            raise ValueError(f"{len(objectives)} objectives need as many weights, none negative, got {given}")
        pairs = zip(objectives, given, strict=True)
        self._weights = {name: weight / sum(given) for name, weight in pairs if weight}

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives of a weight above 0."""
        return tuple(ScheduledObjective(name, weight, step) for name, weight in self._weights.items())
