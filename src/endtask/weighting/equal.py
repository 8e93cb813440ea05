"""Every objective at every step, with the same weight (MT-TARTAN) or given ones; with one objective, plain training."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from endtask.weighting.base import Turn, Weighting
from endtask.weighting.subset import Subset


class Equal(Weighting):
    """Weights that add up to one: uniform, or in the given proportions.

    Of many objectives `sample` run at a step, beside those that `always` do; each counts as much more as it runs less
    often, so that on average all count as without it.

    >>> Equal("a", "b").turns(3)
    (Turn(objective='a', weight=0.5, step=3), Turn(objective='b', weight=0.5, step=3))
    >>> [turn.weight for turn in Equal("a", "b", weights=(3, 1)).turns(0)]
    [0.75, 0.25]
    >>> some = Equal("task", "a", "b", always=["task"], sample=1).turns(0)
    >>> len(some), round(sum(turn.weight for turn in some), 4)
    (2, 1.0)
    """

    def __init__(
        self,
        *objectives: str,
        weights: Sequence[float] | None = None,
        always: Collection[str] = (),
        sample: int | None = None,
        seed: int = 0,
    ) -> None:
        given = [1.0] * len(objectives) if weights is None else list(weights)
        if len(given) != len(objectives) or min(given) < 0 or sum(given) <= 0:
            raise ValueError(f"{len(objectives)} objectives need as many weights, none negative, got {given}")
        weighed = zip(objectives, given, strict=True)
        self._weights = {name: weight / sum(given) for name, weight in weighed if weight}
        self._sampled = [name for name in self._weights if name not in always]
        self._subset = Subset(self._sampled, sample or len(self._sampled), seed)

    def turns(self, step: int) -> tuple[Turn, ...]:
        """All objectives that count and whose turn it is."""
        running = self._subset.at(step)
        return tuple(self._turn(name, step) for name in self._weights if name in running or name not in self._sampled)

    @property
    def period(self) -> int:
        """A round of those that take turns."""
        return self._subset.round

    def _turn(self, name: str, step: int) -> Turn:
        weight = self._weights[name]
        if name not in self._sampled:
            return Turn(name, weight, step)
        return Turn(name, weight / self._subset.share, self._subset.turns_before(name, step))
