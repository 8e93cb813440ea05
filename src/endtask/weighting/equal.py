"""Every objective at every step, with equal weights (MT-TARTAN) or those of the settings."""

from __future__ import annotations

from collections.abc import Sequence

from endtask.config.section import Fraction
from endtask.weighting.base import (
    TASK_WARMUP,
    PartConfig,
    Rule,
    ScheduledObjective,
    Weighting,
    WeightingContext,
    ramp,
    used_weights,
    weightings,
)


@weightings.register("equal")
class EqualWeighting(Weighting):
    """all objectives at each step, by their weights (MT-TARTAN)"""

    class Config(PartConfig):
        """How the weights change."""

        task_warmup: Fraction = TASK_WARMUP

    config: Config

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule."""
        if not self.config.task_warmup:
            return Equal(*run.objectives, weights=run.weights)
        return WarmedTask(*run.objectives, weights=run.weights, task=run.end_task, steps=steps, config=self.config)


class Equal(Rule):
    """Constant weights that add up to one: equal, or in proportion to `weights`.

    >>> Equal("a", "b").schedule(3)
    (ScheduledObjective(objective='a', weight=0.5, step=3), ScheduledObjective(objective='b', weight=0.5, step=3))
    >>> [item.weight for item in Equal("a", "b", weights=(3, 1)).schedule(0)]
    [0.75, 0.25]
    """

    def __init__(self, *objectives: str, weights: Sequence[float] | None = None) -> None:
        used = used_weights(objectives, weights)
        total = sum(weight for _, weight in used)
        self._weights = {name: weight / total for name, weight in used}

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives with a weight above 0."""
        return tuple(ScheduledObjective(name, weight, step) for name, weight in self._weights.items())


class WarmedTask(Equal):
    """Constant weights, but for the end task's, which grows over the first steps; the others share what is left.

    >>> config = EqualWeighting.Config(task_warmup=0.5)
    >>> rule = WarmedTask("task", "mlm", task="task", steps=8, config=config)
    >>> [[round(item.weight, 3) for item in rule.schedule(step)] for step in (0, 1, 3, 7)]
    [[0.2, 0.8], [0.333, 0.667], [0.5, 0.5], [0.5, 0.5]]
    """

    def __init__(
        self,
        *objectives: str,
        weights: Sequence[float] | None = None,
        task: str,
        steps: int | None,
        config: EqualWeighting.Config,
    ) -> None:
        super().__init__(*objectives, weights=weights)
        self._task, self._steps, self._share = task, steps, config.task_warmup

    def schedule(self, step: int) -> tuple[ScheduledObjective, ...]:
        """Return all objectives; the weights of a step add up to one."""
        grown = ramp(step, self._steps, self._share)
        weights = {name: weight * (grown if name == self._task else 1.0) for name, weight in self._weights.items()}
        total = sum(weights.values())
        return tuple(ScheduledObjective(name, weight / total, step) for name, weight in weights.items())
