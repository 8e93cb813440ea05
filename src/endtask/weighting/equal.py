"""Every objective at every step with the same weight, 1/n (MT-TARTAN); with one objective, plain training."""

from __future__ import annotations

from endtask.weighting.base import Turn


class Equal:
    """Uniform weights that add up to one.

    >>> Equal("a", "b").turns(3)
    (Turn(objective='a', weight=0.5, step=3), Turn(objective='b', weight=0.5, step=3))
    """

    def __init__(self, *objectives: str) -> None:
        self._objectives = objectives

    def turns(self, step: int) -> tuple[Turn, ...]:
        """All objectives."""
        return tuple(Turn(name, 1.0 / len(self._objectives), step) for name in self._objectives)
