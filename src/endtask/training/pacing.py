"""Keep pre-training within a time budget: plan its number of steps again by the measured speed.

A plan made before the first step is wrong where other programs use the machine meanwhile. At a few points of the phase
the rest is planned again, and the learning rate follows the new plan without a jump. Each decision is written to the
manifest before it is acted on, so a resumed run trains the same steps.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

from endtask.io.stage_folder import StageFolder
from endtask.training.phase import Phase

CHECKS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.92)
"""Shares of the phase after which the rest is planned again."""
MOST_TIMES_FASTER = 4.0
"""A stretch of steps is not trusted to be more than so many times faster than planned."""


@dataclass
class Pacer:
    """Plans the steps of a phase again so that the stage has used `seconds` when the phase ends."""

    stage: StageFolder
    seconds: float
    _since: tuple[int, float] | None = field(default=None, init=False)

    def restored(self, phase: Phase, start: int) -> Phase:
        """Return the phase as it was planned by step `start`, and begin to measure."""
        self._since = (start, time.monotonic())
        recorded = self._recorded()
        phase = _with_replans(phase, tuple(replan for replan in recorded if replan[0] < start))
        if 0 < start < phase.steps and self.next_check(phase, start - 1) == start:
            # Killed between the checkpoint and the decision: no speed is known, so the plan stays.
            steps = dict(recorded).get(start, phase.steps)
            self.stage.set_plan(replans=sorted({**dict(recorded), start: steps}.items()))
            phase = _with_replans(phase, (*phase.replans, (start, steps)))
        return phase

    def next_check(self, phase: Phase, step: int) -> int:
        """Return the next step after `step` at which to plan again, or the last step."""
        points = (phase.step_at(share * phase.planned_steps) for share in CHECKS)
        return min((point for point in points if step < point < phase.steps), default=phase.steps)

    def replan(self, phase: Phase, step: int) -> Phase:
        """Return the phase with the number of steps that the remaining time allows."""
        recorded = dict(self._recorded())
        if step not in recorded:
            recorded[step] = phase.context.processes.shared(self._steps_in_time(phase, step))
            self.stage.set_plan(replans=sorted(recorded.items()))
        self._since = (step, time.monotonic())
        return _with_replans(phase, (*phase.replans, (step, recorded[step])))

    def _steps_in_time(self, phase: Phase, step: int) -> int:
        assert self._since is not None
        phase.context.synchronize()
        first, started = self._since
        seconds_per_step = (time.monotonic() - started) / max(1, step - first)
        left = max(0.0, self.seconds - self.stage.seconds)
        return steps_left(left, seconds_per_step, planned=phase.steps - step) + step

    def _recorded(self) -> list[tuple[int, int]]:
        return [(step, steps) for step, steps in self.stage.plan.get("replans", ())]


def steps_left(seconds: float, seconds_per_step: float, *, planned: int) -> int:
    """Return how many steps fit into the remaining seconds: at least 1, and at most a few times the planned number.

    >>> steps_left(10.0, 0.5, planned=30), steps_left(0.0, 0.5, planned=30), steps_left(10.0, 1e-9, planned=30)
    (20, 1, 120)
    """
    most = math.ceil(MOST_TIMES_FASTER * planned)
    return max(1, min(most, int(seconds / max(seconds_per_step, 1e-9))))


def _with_replans(phase: Phase, replans: tuple[tuple[int, int], ...]) -> Phase:
    if not replans:
        return phase
    return replace(phase, steps=replans[-1][1], planned=phase.planned_steps, replans=replans)
