"""A phase of training: network, objectives, weighting, number of steps and learning rate schedule.

Steps are counted from 0. The learning rate and the batches of a step are pure functions of the step, so a checkpoint
needs neither.
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
_LONGEST_WARMUP, _SCALED_WARMUP = 0.5, 0.1
DECAY_FRACTION = 0.2
"""Share of the steps in which the learning rate of `warmup_stable_decay` falls."""


def schedule_factor(
    step: float, *, steps: int, warmup_steps: int, kind: ScheduleKind, decay_fraction: float = DECAY_FRACTION
) -> float:
    """Return the learning rate of a step as a share of the peak: linear warm-up, then decay to 0 after the last step.

    No step has a rate of zero. Hugging Face's schedules start the warm-up at zero, so during the warm-up ours are one
    step ahead; after it they are the same. `decay_fraction` is the share of all steps in which the rate of
    `warmup_stable_decay` falls; a long warm-up shortens it.

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
    """Return the number of warm-up steps: the setting, or a share of the steps.

    A number that is more than half of the steps belongs to a longer run: a tenth of the steps replaces it.

    >>> [warmup_steps_of(PhaseSettings(warmup_steps=warmup), 50) for warmup in (0.1, 20, 80)]
    [5, 20, 5]
    """
    warmup = settings.warmup_steps
    if warmup < 1:
        return int(steps * warmup)
    return int(_SCALED_WARMUP * steps) if is_warmup_too_long(settings, steps) else int(warmup)


def is_warmup_too_long(settings: PhaseSettings, steps: int) -> bool:
    """Return whether a warm-up in steps takes more than half of the steps."""
    return settings.warmup_steps >= 1 and settings.warmup_steps > _LONGEST_WARMUP * steps


def batches_in_step(step: int, *, steps: int, accumulation: int, ramp_fraction: float) -> int:
    """Return how many batches a step accumulates: 1 in the first step, `accumulation` after the ramp.

    >>> [batches_in_step(step, steps=8, accumulation=3, ramp_fraction=0.5) for step in range(8)]
    [1, 1, 2, 2, 3, 3, 3, 3]
    """
    ramp_steps, added = int(steps * ramp_fraction), accumulation - 1
    return accumulation if step >= ramp_steps else 1 + step * added // ramp_steps


class RefreshHook(Protocol):
    """Changes the batches of a phase every `steps` steps, such as by a new choice of texts.

    Batches are a pure function of the step and of the hook's state, which the checkpoint contains. Prefetching stops at
    each change and starts again after it.
    """

    @property
    def steps(self) -> int:
        """Number of steps between changes."""
        ...

    def apply(self, step: int, state: dict[str, Any]) -> dict[str, float]:
        """Change the batches after `step` steps; return values for the curves. May add to the counts in `state`."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint stores."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        ...


@dataclass(frozen=True)
class Phase:
    """A network, its objectives and their weighting, with the number of steps and the learning rate.

    `network` is any module with an `encoder`, which all objectives share, and `heads` by name. With
    `update_unused_heads`, a head without a batch in a step gets a gradient of zeros instead of None, so momentum and
    weight decay still move it.
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
    planned: int | None = None
    """The number of steps of the first plan, where the steps were planned again."""
    replans: tuple[tuple[int, int], ...] = ()
    """Each (step, number of steps from then on), in order."""

    @property
    def planned_steps(self) -> int:
        """The number of steps of the first plan, in which schedules count."""
        return self.steps if self.planned is None else self.planned

    def position(self, step: int) -> float:
        """Return the step of the first plan that a step corresponds to; the last steps of both plans correspond."""
        if not self.replans:
            return step
        start, position, steps = 0, 0.0, self.planned_steps
        for at, new_steps in (*self.replans, (self.steps + 1, self.steps)):
            if step < at:
                break
            position += (at - start) * (self.planned_steps - position) / (steps - start)
            start, steps = at, new_steps
        return position + (step - start) * (self.planned_steps - position) / (steps - start)

    def step_at(self, position: float) -> int:
        """Return the first step at or after a position of the first plan."""
        low, high = 0, self.steps
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.position(middle) >= position else (middle + 1, high)
        return low

    def batches_in(self, step: int) -> int:
        """Return how many batches each scheduled objective accumulates in a step."""
        return batches_in_step(
            int(self.position(step)),
            steps=self.planned_steps,
            accumulation=self.accumulation,
            ramp_fraction=self.ramp_fraction,
        )

    def rate_factor(self, step: int) -> float:
        """Return the learning rate of a step as a share of the peak."""
        return schedule_factor(
            self.position(step),
            steps=self.planned_steps,
            warmup_steps=warmup_steps_of(self.settings, self.planned_steps),
            kind=self.settings.lr_scheduler_type,
        )
