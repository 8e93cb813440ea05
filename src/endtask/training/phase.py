"""A phase of training: what is trained, on what, how fast and for how long.

Steps are counted from 0. The learning rate and the batches of a step are pure functions of the step, so a resumed phase
needs nothing saved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from endtask.config import PhaseSettings
from endtask.encoders.device_context import DeviceContext
from endtask.objectives.base import BuiltObjective
from endtask.weighting.base import Rule

ScheduleKind = Literal["linear", "cosine", "constant", "warmup_stable_decay"]
DECAY_FRACTION = 0.2
"""Share of the steps in which the rate of `warmup_stable_decay` falls."""


def schedule_factor(
    step: int, *, steps: int, warmup_steps: int, kind: ScheduleKind, decay_fraction: float = DECAY_FRACTION
) -> float:
    """The rate of a step as a share of the peak rate: linear warm-up, then decay to zero just after the last step.

    No step has a rate of zero. Hugging Face's schedules give the first warm-up step none, so during the warm-up ours
    are one step ahead of them; after it they are the same. `decay_fraction` is the part of all steps in which the rate
    of `warmup_stable_decay` falls, or less where the warm-up leaves less.

    >>> [schedule_factor(step, steps=6, warmup_steps=2, kind="linear") for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    >>> stable = {"steps": 6, "warmup_steps": 1, "kind": "warmup_stable_decay", "decay_fraction": 0.5}
    >>> [round(schedule_factor(step, **stable), 2) for step in range(6)]
    [1.0, 1.0, 1.0, 1.0, 0.67, 0.33]
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    left = (steps - step) / max(1, steps - warmup_steps)
    if kind == "linear":
        return left
    if kind == "cosine":
        return 0.5 * (1.0 - math.cos(math.pi * left))
    if kind == "warmup_stable_decay":
        decay_steps = min(int(steps * decay_fraction), steps - warmup_steps)
        return min(1.0, (steps - step) / max(1, decay_steps))
    return 1.0


def warmup_steps_of(settings: PhaseSettings, steps: int) -> int:
    """Return the number of warm-up steps: as given, at most all, or a share of the steps.

    >>> warmup_steps_of(PhaseSettings(warmup_steps=0.1), 50), warmup_steps_of(PhaseSettings(warmup_steps=80), 50)
    (5, 50)
    """
    given = settings.warmup_steps
    return min(int(given), steps) if given >= 1 else int(steps * given)


def batches_in_step(step: int, *, steps: int, accumulation: int, ramp_fraction: float) -> int:
    """How many batches a step takes: from 1 in the first step to all `accumulation` when the ramp is over.

    >>> [batches_in_step(step, steps=8, accumulation=3, ramp_fraction=0.5) for step in range(8)]
    [1, 1, 2, 2, 3, 3, 3, 3]
    """
    return 1 + sum(start <= step for start in _ramp_starts(steps, accumulation, ramp_fraction))


def _ramp_starts(steps: int, accumulation: int, ramp_fraction: float) -> list[int]:
    """For each batch beyond the first, the first step that takes it."""
    ramp, more = int(steps * ramp_fraction), accumulation - 1
    return [-(-ramp * number // more) for number in range(1, more + 1)]  # rounded up, in whole numbers


class RefreshHook(Protocol):
    """What changes the batches of a phase every `steps` steps, such as a new choice of texts.

    Batches are a pure function of the step and of its state, which travels in the checkpoint. None is made ready
    across such a step.
    """

    @property
    def steps(self) -> int:
        """How many steps from one change to the next."""
        ...

    def apply(self, step: int, memory: dict[str, Any]) -> dict[str, float]:
        """Change the batches after so many steps; may add to the counts in `memory`, returns values for the curves."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a resumed run must know."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        ...


@dataclass(frozen=True)
class Phase:
    """What is trained, on what, how fast and for how long.

    With `update_unused_heads`, a head whose objective has no turn has a gradient of zeros instead of none, so that the
    optimizer's momentum and decay go on moving it.

    The network is any module with a part `encoder` that all objectives share, and `heads` by name.
    """

    network: Any
    objectives: Mapping[str, BuiltObjective]
    weighting: Rule
    steps: int
    settings: PhaseSettings
    learning_rate: float
    seed: int
    context: DeviceContext
    accumulation: int = 1
    ramp_fraction: float = 0.0
    update_unused_heads: bool = False
    head_weight_decay: float | None = None
    clip_heads_apart: bool = False
    refresh: RefreshHook | None = None

    def batches_in(self, step: int) -> int:
        """How many batches of each objective make up a step."""
        return batches_in_step(step, steps=self.steps, accumulation=self.accumulation, ramp_fraction=self.ramp_fraction)

    def rate_factor(self, step: int) -> float:
        """The schedule's share of the peak rate."""
        settings = self.settings
        return schedule_factor(
            step,
            steps=self.steps,
            warmup_steps=warmup_steps_of(settings, self.steps),
            kind=settings.lr_scheduler_type,
        )
