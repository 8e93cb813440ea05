"""An interleave whose share of task batches changes on the way, such as from much of the task to little of it."""

from __future__ import annotations

from endtask.weighting.interleave import Interleave


class AnnealedInterleave(Interleave):
    """The share of internal steps goes linearly from 1 / (rho1 + 1) to 1 / (rho1_end + 1) over `steps`, and stays.

    A step is internal when the integral of the share over all steps so far passes a whole number. That is a fraction
    of whole numbers, so the turn of any step is exact and known without those before it.

    >>> rule = AnnealedInterleave("corpus", "task", rho1=3, rho1_end=0, steps=8)
    >>> "".join(rule.schedule(step)[0].objective[0] for step in range(10))
    'cctctttttt'
    """

    def __init__(self, external: str, internal: str, rho1: int, rho1_end: int, steps: int) -> None:
        super().__init__(external, internal, rho1)
        self._last_period, self._steps = rho1_end + 1, steps

    def task_before(self, step: int) -> int:
        """The whole part of the integral: step / p + (1 / q - 1 / p) step^2 / (2 steps), for periods from p to q."""
        first, last, steps = self._period, self._last_period, self._steps
        changing = min(step, steps)
        after = 2 * steps * first * (step - changing)
        return (2 * steps * last * changing + (first - last) * changing**2 + after) // (2 * steps * first * last)


class MeanInterleave(Interleave):
    """A constant mix with as many task batches in all as an annealed one, whatever the number of steps.

    >>> rule = MeanInterleave("corpus", "task", rho1=1, rho1_end=0)
    >>> "".join(rule.schedule(step)[0].objective[0] for step in range(8))
    'ctttcttt'
    """

    def __init__(self, external: str, internal: str, rho1: int, rho1_end: int) -> None:
        super().__init__(external, internal, rho1)
        self._last_period = rho1_end + 1

    def task_before(self, step: int) -> int:
        """The whole part of step times the mean share, (1 / p + 1 / q) / 2."""
        return step * (self._period + self._last_period) // (2 * self._period * self._last_period)
