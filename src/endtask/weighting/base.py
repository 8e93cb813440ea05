"""What a weighting is: which objectives train at a step, and with which weight.

A weighting is one file: its options (`Config`), its checks, and the rule that it builds for a phase:

    @weightings.register("equal")
    class EqualWeighting(Weighting):
        def build(self, run: WeightingContext, steps: int | None) -> Rule: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from endtask.config.section import PartConfig
from endtask.registry import weightings

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from endtask.config import Settings
    from endtask.config.data_usage import DataUse
    from endtask.config.objectives import Objectives
    from endtask.config.training import WeightingSettings
    from endtask.encoders.device_context import DeviceContext
    from endtask.encoders.network import Network
    from endtask.task import Task
    from endtask.weighting.folds import Folds

__all__ = [
    "TASK_WARMUP",
    "ExtraCost",
    "PartConfig",
    "Rule",
    "ScheduledObjective",
    "Weighting",
    "WeightingContext",
    "left_out_of_batches",
    "weightings",
]


TASK_WARMUP: Any = Field(
    0.0,
    description="share of the steps over which the end task's weight grows from about 0 to its value, since a task "
    "that weighs much from random weights on costs points; 0: none",
)


@dataclass(frozen=True)
class ScheduledObjective:
    """An objective that trains at a step; `step` counts its own steps, so that it reads its data in order."""

    objective: str
    weight: float
    step: int


class Rule:
    """The schedule and the weights of a phase over named objectives.

    Most rules only implement `schedule`. A rule that sets its weights while training returns True from
    `sees_gradients`: the loop then passes it the gradient of each objective on the shared encoder, and uses the weights
    that `weigh` returns. Checkpoints contain its `state`.
    """

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return the objectives that train at this step; a pure function of the step."""
        raise NotImplementedError

    def sees_gradients(self, step: int) -> bool:
        """Whether the loop calls `observe_losses` and `weigh` at this step."""
        return False

    def observe_losses(self, step: int, losses: Mapping[str, Tensor]) -> None:
        """Use the losses of the step, on the device, by `OBJECTIVE/PART`; the loop calls it before `weigh`."""

    def weigh(self, step: int, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights of all objectives, on the device, given their gradients (P,) on the encoder's P weights.

        The P weights are in the order of `encoder.parameters()`, in memory that the next step reuses. A rule may
        compute gradients with the network that it was built with; the loop overwrites those that it leaves there.
        Learn in `after_step`, since the optimizer may still skip the step.
        """
        raise NotImplementedError

    def after_step(self, step: int, skipped: Tensor) -> None:
        """Update the rule; `skipped`, on the device, is true if the gradient of the step was not finite."""

    def values(self) -> dict[str, Tensor]:
        """Return values for the curves, such as `weight/OBJECTIVE`; the rule must not change these tensors later."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state, got {sorted(state)}")


def ramp(step: int, steps: int | None, share: float) -> float:
    """Return how much of its weight the end task has at a step, if it grows over a share of the steps.

    >>> [ramp(step, 10, 0.4) for step in (0, 1, 3, 9)], ramp(0, 10, 0.0), ramp(0, None, 0.4)
    ([0.25, 0.5, 1.0, 1.0], 1.0, 1.0)
    """
    warmup_steps = 0 if steps is None else int(share * steps)
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


def used_weights(objectives: Sequence[str], weights: Sequence[float] | None) -> list[tuple[str, float]]:
    """Return the objectives with a weight above 0 and their weights; without `weights` all have the weight 1."""
    values = [1.0] * len(objectives) if weights is None else list(weights)
    if not objectives or len(values) != len(objectives) or min(values) < 0 or sum(values) <= 0:
        raise ValueError(f"{len(objectives)} objectives need as many weights, none negative, got {values}")
    return [(name, weight) for name, weight in zip(objectives, values, strict=True) if weight]


@dataclass(frozen=True)
class WeightingContext:
    """What a weighting builds its rule from; `objectives` are those that have text, in order."""

    objectives: tuple[str, ...]
    task: Task
    packed: Path
    network: Network
    settings: Settings
    context: DeviceContext

    @property
    def end_task(self) -> str:
        """The first objective that learns from the end task's labels; empty without one."""
        used = self.settings.used_objectives
        return next((name for name in self.objectives if used[name].sees_labels), "")

    @property
    def weights(self) -> list[float]:
        """The weights that the settings give the objectives."""
        used = self.settings.used_objectives
        return [used[name].weight for name in self.objectives]


@dataclass(frozen=True)
class ExtraCost:
    """What a weighting computes in addition to the objectives, every `every` steps.

    `trained_tokens` counts a forward pass without a backward pass as a third.
    """

    name: str
    every: int
    tokens: float
    trained_tokens: float
    matmul_flops: float


class Weighting:
    """Base class of weightings."""

    name: ClassVar[str]
    sequential: ClassVar[bool] = False
    """Whether each objective is a phase of its own, one after the other."""
    learns_weights: ClassVar[bool] = False
    """Whether it compares gradients of whole networks."""
    tlm_only: ClassVar[bool] = False
    """Whether it trains TLM's two objectives and no others."""
    needs_task: ClassVar[bool] = False
    """Whether some objective must learn the end task."""

    Config: ClassVar[type[PartConfig]] = PartConfig
    """The options next to `pretrain.weighting.name`; a nested class in most weightings."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def trained(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the objectives that this weighting trains at some step."""
        return names

    def trained_last(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the objectives that are trained up to the last step."""
        return names

    def check_objectives(self, objectives: Objectives) -> None:
        """Raise `ValueError` for objectives that this weighting cannot train."""

    def check_texts(self, names: tuple[str, ...]) -> None:
        """Raise `InputError` where the objectives that have text are too few."""

    def preflight(self, task: Task) -> None:
        """Raise `InputError` for a task that this weighting cannot be used with."""

    def warnings(self, task: Task, settings: Settings) -> Iterator[str]:
        """Yield warnings about a task, before and during training."""
        return iter(())

    def unused_settings(self, settings: Settings) -> Iterator[str]:
        """Yield a line for each option that has no effect."""
        return iter(())

    def data_usage(self, groups: int | None) -> Iterator[DataUse]:
        """Yield how the weighting uses labelled data; `groups` is the number of groups of train rows, None: unknown."""
        return iter(())

    @property
    def number_of_folds(self) -> int | None:
        """The number of parts into which `folds` cuts train; None: it does not cut train."""
        return None

    def folds(self, task: Task, seed: int, steps: int | None = None) -> Folds | None:
        """Return the parts of train that are held out in turn; None: objectives read all of train."""
        return None

    def on_sample(self, task: Task, section: WeightingSettings) -> WeightingSettings:
        """Return the settings with which a sample of the task, without dev, is trained to estimate the cost."""
        return section

    def depends_on_steps(self, task: Task, settings: Settings, steps: int) -> bool:
        """Whether the mean over `steps` steps differs from the one for an unknown number of steps."""
        return False

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule of a phase of `steps` steps; None: not yet known."""
        raise NotImplementedError

    def mean(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return a rule whose steps cost on average as much as those of `build`, whatever their number."""
        return self.build(run, steps)

    def extra_cost(self, run: WeightingContext) -> ExtraCost | None:
        """Return what the rule computes in addition to the objectives."""
        return None


def left_out_of_batches(folds: Folds, settings: Settings) -> Callable[[int], NDArray[np.bool_]]:
    """Return a function from a batch's number to the texts of the end task that it must leave out.

    A step has several batches if gradients are accumulated.
    """
    per_step = settings.pretrain.gradient_accumulation_steps
    return lambda batch: folds.held_out(batch // per_step)
