"""Every objective at every step, with the same weight (MT-TARTAN) or given ones; with one objective, plain training."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.weighting.base import Turn, Weighting


class Equal(Weighting):
    """Weights that add up to one: uniform, or in the given proportions.

    >>> Equal("a", "b").turns(3)
    (Turn(objective='a', weight=0.5, step=3), Turn(objective='b', weight=0.5, step=3))
    >>> [turn.weight for turn in Equal("a", "b", weights=(3, 1)).turns(0)]
    [0.75, 0.25]
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        given = [1.0] * len(objectives) if weights is None else list(weights)
        if len(given) != len(objectives) or min(given) < 0 or sum(given) <= 0:
            raise ValueError(f"{len(objectives)} objectives need as many weights, none negative, got {given}")
        weighed = zip(objectives, given, strict=True)
        self._weights = {name: weight / sum(given) for name, weight in weighed if weight}

    def turns(self, step: int) -> tuple[Turn, ...]:
        """All objectives that count."""
        return tuple(Turn(name, weight, step) for name, weight in self._weights.items())
