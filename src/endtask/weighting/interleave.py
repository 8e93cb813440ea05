"""TLM's interleave: rho1 external batches, then one internal batch (TLM, section 3)."""

from __future__ import annotations

from endtask.weighting.base import Turn, Weighting


class Interleave(Weighting):
    """A step is internal if (step + 1) is a multiple of rho1 + 1, else external; steps count from 0.

    >>> rule = Interleave("external", "internal", rho1=2)
    >>> [rule.turns(step)[0].objective for step in range(4)]
    ['external', 'external', 'internal', 'external']
    """

    def __init__(self, external: str, internal: str, rho1: int) -> None:
        self._external, self._internal, self._period = external, internal, rho1 + 1

    def turns(self, step: int) -> tuple[Turn, ...]:
        """One objective per step, always with weight 1."""
        internal_before = self.internal_before(step)
        if self.internal_before(step + 1) > internal_before:
            return (Turn(self._internal, 1.0, internal_before),)
        return (Turn(self._external, 1.0, step - internal_before),)

    def internal_before(self, step: int) -> int:
        """How many of the steps before this one are internal."""
        return step // self._period
