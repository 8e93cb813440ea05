"""Every objective at every step, with the same weight (MT-TARTAN) or given ones; with one objective, plain training."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.weighting.base import ScheduledObjective, Weighting


class Equal(Weighting):
    """Weights that add up to one: uniform, or in the given proportions.

    >>> Equal("a", "b").schedule(3)
    (ScheduledObjective(objective='a', weight=0.5, step=3), ScheduledObjective(objective='b', weight=0.5, step=3))
    >>> [turn.weight for turn in Equal("a", "b", weights=(3, 1)).schedule(0)]
    [0.75, 0.25]
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        given = [1.0] * len(objectives) if weights is None else list(weights)
        if len(given) != len(objectives) or min(given) < 0 or sum(given) <= 0:
            raise ValueError(f"{len(objectives)} objectives need as many weights, none negative, got {given}")
        weighed = zip(objectives, given, strict=True)
        self._weights = {name: weight / sum(given) for name, weight in weighed if weight}

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """All objectives that count."""
        return tuple(ScheduledObjective(name, weight, step) for name, weight in self._weights.items())
