"""META-TARTAN as a weighting: its checks, and the rule that it builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from endtask.errors import InputError
from endtask.seeds import derive
from endtask.weighting.base import ExtraCost, Rule, Weighting, WeightingContext, weightings
from endtask.weighting.folds import SPLIT_KEY, Folds, check_several_groups, folds_of, groups_in, smallest_part
from endtask.weighting.meta.config import LEARNED_WEIGHTS, MetaConfig

if TYPE_CHECKING:
    from endtask.config import Settings
    from endtask.config.data_usage import DataUse
    from endtask.config.objectives import Objectives
    from endtask.config.training import WeightingSettings
    from endtask.task import Task

_LEAST_REACH = 1.0
"""Least movement of a logit if all cosines were 1; real ones are about 0.1, which moves a weight from 0.5 to 0.52."""


@weightings.register("meta")
class MetaWeighting(Weighting):
    """all objectives at each step, by weights learned from held-out task loss (META-TARTAN)"""

    needs_task = True
    learns_weights = True
    Config = MetaConfig
    config: MetaConfig

    def check_objectives(self, objectives: Objectives) -> None:
        """Raise `ValueError` for a single objective."""
        if len(objectives) == 1:
            only = next(iter(objectives))
            raise ValueError(f"weighting: meta has nothing to weigh, {only} is alone; add an objective, or use equal")

    def check_texts(self, names: tuple[str, ...]) -> None:
        """Raise `InputError` where a single objective has text."""
        if len(names) == 1:
            raise InputError(
                f"meta has nothing to weigh: without corpus text {names[0]} is alone",
                key="pretrain.weighting",
                hint="name a corpus, add an objective, or use equal",
            )

    def preflight(self, task: Task) -> None:
        """Raise `InputError` for a train split that cannot be cut into folds."""
        if self.config.split == "folds":
            check_several_groups(groups_in(task.train), SPLIT_KEY)

    @property
    def number_of_folds(self) -> int | None:
        """The number of parts, with `split: folds`."""
        return self.config.folds if self.config.split == "folds" else None

    def folds(self, task: Task, seed: int, steps: int | None = None) -> Folds | None:
        """Return the parts of train that are held out in turn; None with `split: dev`."""
        if self.config.split != "folds":
            return None
        return folds_of(task.train, self.config.folds, derive(seed, "folds"), every=self.config.every, steps=steps)

    def on_sample(self, task: Task, section: WeightingSettings) -> WeightingSettings:
        """Return the settings with folds instead of dev; `equal` where train cannot be cut."""
        from endtask.config.training import WeightingSettings

        if groups_in(task.train) < 2:
            return WeightingSettings(name="equal")
        return section.model_copy(update={"split": "folds"})

    def build(self, run: WeightingContext, steps: int | None) -> Rule:
        """Return the rule with its held-out gradient."""
        from endtask.weighting.meta.rule import meta_rule

        return meta_rule(run, self.config, self.folds(run.task, run.settings.pretrain_seed, steps), steps)

    def extra_cost(self, run: WeightingContext) -> ExtraCost | None:
        """Return the cost of a weight update."""
        from endtask.weighting.meta.rule import held_out_cost

        return held_out_cost(run, self.config)

    def warnings(self, task: Task, settings: Settings) -> Iterator[str]:
        """Warn where fewer rows are held out than the gradient is computed from."""
        size, folds = self.config.gradient_batch, self.folds(task, settings.pretrain_seed)
        rows = len(task.splits.get("dev", ())) if folds is None else smallest_part(folds)
        if rows >= size:
            return
        fewer = f"{rows} {'row' if rows == 1 else 'rows'}, fewer than pretrain.weighting.gradient_batch ({size})"
        if folds is None:
            yield f"dev, whose loss sets the learned weights, has {fewer}; {SPLIT_KEY}=folds uses parts of train"
        else:
            yield (
                f"the parts of train whose loss sets the learned weights have {fewer}; "
                "fewer pretrain.weighting.folds make them larger"
            )

    def data_usage(self, groups: int | None) -> Iterator[DataUse]:
        """Yield the split whose loss sets the weights."""
        from endtask.config.data_usage import DataUse, held_out_by_fold

        # A separate head is fitted to train.
        by_dev = "dev" if self.config.head == "task" else "train, held-out gradient of dev"
        split = by_dev if self.config.split == "dev" else held_out_by_fold(self.config.folds, groups)
        yield DataUse(LEARNED_WEIGHTS, "which objectives help", "the task's texts", split, True)

    def unused_settings(self, settings: Settings) -> Iterator[str]:
        """Yield options that the other options make useless, and a learning rate that hardly changes the weights."""
        changed = [key for key, value in self.config if value != type(self.config).model_fields[key].default]
        for key in changed:
            if key == "fit_batch" and self.config.head == "task":
                yield "pretrain.weighting.fit_batch without effect: pretrain.weighting.head is task"
            elif key == "folds" and self.config.split != "folds":
                yield f"pretrain.weighting.folds without effect: {SPLIT_KEY} is {self.config.split}"
        reach = self.config.learning_rate * settings.budget.amount
        if settings.budget.unit == "steps" and reach < _LEAST_REACH:
            yield (
                f"pretrain.weighting.learning_rate hardly has an effect: {settings.budget.amount:g} steps of "
                f"{self.config.learning_rate:g} move a logit by {reach:.2g} at most, and cosines are mostly far below "
                "1; raise it for so short a run"
            )
