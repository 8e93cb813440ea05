"""Every objective at every step, with equal weights (MT-TARTAN) or those of the settings."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.weighting.base import Rule, ScheduledObjective, Weighting, WeightingContext, used_weights, weightings


@weightings.register("equal")
class EqualWeighting(Weighting):
    """all objectives at each step, by their weights (MT-TARTAN)"""

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule."""
        return Equal(*run.objectives, weights=run.weights)


class Equal(Rule):
    """Constant weights that add up to one: equal, or in proportion to `weights`.

    >>> Equal("a", "b").schedule(3)
    (ScheduledObjective(objective='a', weight=0.5, step=3), ScheduledObjective(objective='b', weight=0.5, step=3))
    >>> [item.weight for item in Equal("a", "b", weights=(3, 1)).schedule(0)]
    [0.75, 0.25]
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        used = used_weights(objectives, weights)
        total = sum(weight for _, weight in used)
        self._weights = {name: weight / total for name, weight in used}

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives with a weight above 0."""
        return tuple(ScheduledObjective(name, weight, step) for name, weight in self._weights.items())
