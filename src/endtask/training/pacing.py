"""Keep a phase within a time budget: plan its number of steps again by the measured speed.

A plan made before the first step is wrong where other programs use the machine meanwhile. At a few points of the phase
the rest is planned again, and the learning rate follows the new plan without a jump. Each decision is written to disk
before it is acted on, so a resumed run trains the same steps.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from endtask.training.phase import Phase

CHECKS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.92)
"""Shares of the phase after which the rest is planned again."""
MOST_TIMES_FASTER = 4.0
"""A stretch of steps is not trusted to be more than so many times faster than planned."""


class Plan(Protocol):
    """Decisions that survive the process, such as those of a stage, and the time that the stage has used."""

    @property
    def plan(self) -> dict[str, Any]:
        """The decisions so far."""
        ...

    @property
    def seconds(self) -> float:
        """The seconds that the stage has used so far."""
        ...

    def set_plan(self, **decisions: Any) -> None:
        """Write decisions to disk."""
        ...


@dataclass(frozen=True)
class Scoring:
    """Scores of dev during a phase: every `every` steps and at the end, each as long as `steps` steps."""

    steps: float = 0.0
    every: int = 1

    def between(self, first: int, last: int) -> float:
        """Return how many steps the scores between two steps take as long as.

        >>> Scoring(steps=2.0, every=10).between(5, 30)
        6.0
        """
        return self.steps * (last // self.every - first // self.every)

    def steps_in(self, steps: float, *, start: int) -> int:
        """Return how many steps from `start` on take as long, with their scores and that of the end, as `steps` alone.

        >>> Scoring(steps=2.0, every=10).steps_in(24.0, start=0), Scoring(steps=2.0, every=10).steps_in(6.0, start=0)
        (20, 4)
        """
        until_score = self.every - start % self.every
        if steps - self.steps <= until_score:
            return math.floor(steps - self.steps)
        after = (steps - self.steps - until_score) / (1 + self.steps / self.every)
        return math.floor(until_score + after)


@dataclass
class Pacer:
    """Plans the steps of a phase again so that the stage has used `seconds` when the phase ends."""

    stage: Plan
    seconds: float
    most_steps: int | None = None
    """The phase never gets longer than this."""
    scoring: Scoring = Scoring()
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
        seconds_per_step = (time.monotonic() - started) / max(1.0, step - first + self.scoring.between(first, step))
        left = max(0.0, self.seconds - self.stage.seconds)
        in_time = self.scoring.steps_in(left / max(seconds_per_step, 1e-9), start=step)
        steps = step + steps_left(in_time, planned=phase.steps - step)
        return steps if self.most_steps is None else min(steps, self.most_steps)

    def _recorded(self) -> list[tuple[int, int]]:
        return [(step, steps) for step, steps in self.stage.plan.get("replans", ())]


def steps_left(in_time: int, *, planned: int) -> int:
    """Return how many steps to train: as many as are in time, at least 1, and at most a few times the planned number.

    >>> steps_left(20, planned=30), steps_left(0, planned=30), steps_left(10**9, planned=30)
    (20, 1, 120)
    """
    return max(1, min(math.ceil(MOST_TIMES_FASTER * planned), in_time))


def _with_replans(phase: Phase, replans: tuple[tuple[int, int], ...]) -> Phase:
    if not replans:
        return phase
    return replace(phase, steps=replans[-1][1], planned=phase.planned_steps, replans=replans)
