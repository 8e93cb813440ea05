"""TLM's interleave: rho1 corpus batches, then one task batch (TLM, section 3)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from endtask.config.objectives import CORPUS_OBJECTIVE, TASK_OBJECTIVE
from endtask.config.section import MOST, infinity_in_words
from endtask.progress import warn
from endtask.weighting.base import PartConfig, Rule, ScheduledObjective, Weighting, WeightingContext, weightings

if TYPE_CHECKING:
    from endtask.config import Settings
    from endtask.config.objectives import Objectives
    from endtask.task import Task

Scale = Literal["small", "medium", "large"]

_GROUPS = (1_000, 5_000, 100_001)
"""Bounds of train rows between groups of tasks: the paper's own bounds for K, under 5,000 and over 100,000, and one
between its smallest task (515 rows), which has more task batches at every scale, and the next (1,688 rows)."""
_RHO1: dict[Scale, tuple[int, int, int, int]] = {
    "small": (99, 999, 19, 1),
    "medium": (99, 999, 99, 3),
    "large": (499, 1999, 99, 7),
}
"""The median over each group of tasks in the paper's Table B.1, smallest tasks first."""
_MEDIUM_STEPS = 200_000
_FEWEST_TASK_BATCHES = 100  # with an automatic rho1; the paper has at least 150


@weightings.register("interleave")
class InterleaveWeighting(Weighting):
    """`rho1` corpus batches, then a task batch (TLM)"""

    tlm_only = True

    class Config(PartConfig):
        """How often the task is trained."""

        rho1: Annotated[
            Annotated[int, Field(ge=0, le=MOST)] | Literal["inf", "auto"], BeforeValidator(infinity_in_words)
        ] = Field(19, description="corpus batches per task batch; inf: no task batches; auto: by the task's size")
        rho1_end: int | None = Field(
            None,
            ge=0,
            le=MOST,
            description="the rho1 of the last step: the share of task batches changes linearly; unset: rho1",
        )

        @model_validator(mode="after")
        def rho1_fits(self) -> InterleaveWeighting.Config:
            if self.rho1 == "inf" and self.rho1_end is not None:
                raise ValueError("rho1_end needs a rho1 to start from; with rho1: inf there are no task batches")
            return self

    config: Config

    def trained(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return all objectives; without the task if rho1 is infinite."""
        return tuple(name for name in names if self.config.rho1 != "inf" or name != TASK_OBJECTIVE)

    def check_objectives(self, objectives: Objectives) -> None:
        """Raise `ValueError` for other objectives than TLM's two, and for weights."""
        if not objectives.keys() <= {CORPUS_OBJECTIVE, TASK_OBJECTIVE}:
            raise ValueError(
                f"weighting: interleave alternates between {CORPUS_OBJECTIVE} and {TASK_OBJECTIVE}, "
                f"not {', '.join(objectives)}; use equal, meta, alternate or sequence"
            )
        weighted = [name for name, item in objectives.items() if item.weight != 1]
        if weighted:
            raise ValueError(f"objectives.{weighted[0]}.weight: interleave has rho1 and rho2; leave it out, or 0")

    def rho1(self, examples: int, settings: Settings, steps: int | None) -> int:
        """Return the corpus batches per task batch: as set, or by the task's size, with enough task batches."""
        if self.config.rho1 != "auto":
            return int(self.config.rho1)
        by_size = automatic_rho1(examples, scale_of(settings))
        return by_size if steps is None else max(1, min(by_size, steps // _FEWEST_TASK_BATCHES - 1))

    def depends_on_steps(self, task: Task, settings: Settings, steps: int) -> bool:
        """Whether an automatic rho1 is smaller because the steps are few."""
        examples = len(task.train)
        return self.config.rho1 == "auto" and self.rho1(examples, settings, steps) != self.rho1(
            examples, settings, None
        )

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule; warns where the steps end before the first task batch."""
        if len(run.objectives) == 1:
            return _alone(run)
        assert steps is not None
        rho1, rho1_end = self.rho1(len(run.task.train), run.settings, steps), self.config.rho1_end
        rule = (
            Interleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1)
            if rho1_end is None
            else AnnealedInterleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1, rho1_end, steps)
        )
        if rule.task_before(steps) == 0:
            warn(f"{steps} steps end before the first task batch (pretrain.weighting.rho1 is {rho1})")
        return rule

    def mean(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return a rule with a constant share of task batches."""
        if len(run.objectives) == 1:
            return _alone(run)
        rho1, rho1_end = self.rho1(len(run.task.train), run.settings, steps), self.config.rho1_end
        if rho1_end is None:
            return Interleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1)
        return MeanInterleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1, rho1_end)


def _alone(run: WeightingContext) -> Rule:
    from endtask.weighting.equal import Equal

    return Equal(*run.objectives)


class Interleave(Rule):
    """A step trains the task if (step + 1) is a multiple of rho1 + 1, else the corpus; steps count from 0.

    >>> rule = Interleave("corpus", "task", rho1=2)
    >>> [rule.schedule(step)[0].objective for step in range(4)]
    ['corpus', 'corpus', 'task', 'corpus']
    """

    def __init__(self, corpus: str, task: str, rho1: int) -> None:
        self._corpus, self._task, self._period = corpus, task, rho1 + 1

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return one objective, always with weight 1."""
        task_before = self.task_before(step)
        if self.task_before(step + 1) > task_before:
            return (ScheduledObjective(self._task, 1.0, task_before),)
        return (ScheduledObjective(self._corpus, 1.0, step - task_before),)

    def task_before(self, step: int) -> int:
        """Return how many of the steps before this one train the task."""
        return step // self._period


class AnnealedInterleave(Interleave):
    """The share of task steps changes linearly from 1 / (rho1 + 1) to 1 / (rho1_end + 1) over `steps`, then stays.

    A step trains the task when the integral of the share over all steps so far passes a whole number. That is a
    fraction of whole numbers, so the objective of any step is exact and known without the steps before it.

    >>> rule = AnnealedInterleave("corpus", "task", rho1=3, rho1_end=0, steps=8)
    >>> "".join(rule.schedule(step)[0].objective[0] for step in range(10))
    'cctctttttt'
    """

    def __init__(self, corpus: str, task: str, rho1: int, rho1_end: int, steps: int) -> None:
        super().__init__(corpus, task, rho1)
        self._last_period, self._steps = rho1_end + 1, steps

    def task_before(self, step: int) -> int:
        """Return the integer part of step / p + (1 / q - 1 / p) step^2 / (2 steps), for periods from p to q."""
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

    def __init__(self, corpus: str, task: str, rho1: int, rho1_end: int) -> None:
        super().__init__(corpus, task, rho1)
        self._last_period = rho1_end + 1

    def task_before(self, step: int) -> int:
        """Return the integer part of step times the mean share, (1 / p + 1 / q) / 2."""
        return step * (self._period + self._last_period) // (2 * self._period * self._last_period)


def automatic_rho1(examples: int, scale: Scale = "small") -> int:
    """Return the corpus batches per task batch: a task with few labels gets few batches, so that it is not memorized.

    Equals 21 of the 24 rows of the paper's Table B.1, and is one step of its grid away from the other three.

    >>> [automatic_rho1(examples) for examples in (500, 3000, 20_000, 180_000)]
    [99, 999, 19, 1]
    """
    return _RHO1[scale][bisect_right(_GROUPS, examples)]


def scale_of(settings: Settings) -> Scale:
    """Return which of TLM's scales a run is nearest to; the paper's small and medium differ only in their steps.

    >>> from endtask.config import load_settings
    >>> [scale_of(load_settings(preset=name)) for name in ("laptop", "tlm-medium", "tlm-large")]
    ['small', 'medium', 'large']
    """
    if settings.retrieve.top_k == "auto_large":
        return "large"
    long = settings.budget.unit == "steps" and settings.budget.amount >= _MEDIUM_STEPS
    return "medium" if long else "small"
