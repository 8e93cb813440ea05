"""TLM's interleave: rho1 corpus batches, then one task batch (TLM, section 3)."""

from __future__ import annotations

from endtask.weighting.base import ScheduledObjective, Weighting


class Interleave(Weighting):
    """A step is internal if (step + 1) is a multiple of rho1 + 1, else external; steps count from 0.

    >>> rule = Interleave("corpus", "task", rho1=2)
    >>> [rule.schedule(step)[0].objective for step in range(4)]
    ['corpus', 'corpus', 'task', 'corpus']
    """

    def __init__(self, external: str, internal: str, rho1: int) -> None:
        self._external, self._internal, self._period = external, internal, rho1 + 1

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """One objective per step, always with weight 1."""
        task_before = self.task_before(step)
        if self.task_before(step + 1) > task_before:
            return (ScheduledObjective(self._internal, 1.0, task_before),)
        return (ScheduledObjective(self._external, 1.0, step - task_before),)

    def task_before(self, step: int) -> int:
        """How many of the steps before this one are internal."""
        return step // self._period
