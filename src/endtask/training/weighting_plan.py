"""From the settings to the weighting of pre-training: which objective runs when, and how much it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from endtask.config import Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.objectives.base import Objective
from endtask.progress import warn
from endtask.task import Task
from endtask.training.pretrain_objectives import CORPUS_OBJECTIVE, TASK_OBJECTIVE, pretrain_head, rho1_of
from endtask.weighting.alternate import Alternate
from endtask.weighting.annealed_interleave import AnnealedInterleave, MeanInterleave
from endtask.weighting.base import Weighting
from endtask.weighting.equal import Equal
from endtask.weighting.interleave import Interleave
from endtask.weighting.meta.build import few_validation_rows, meta_rule


@dataclass(frozen=True)
class WeightingPlan:
    """The objectives of pre-training and what decides on their weights."""

    objectives: Mapping[str, Objective]
    task: Task
    packed: Path
    network: Network
    settings: Settings
    context: DeviceContext

    def over(self, steps: int) -> Weighting:
        """The weighting of a stage of so many steps."""
        if not self._interleaves:
            if few := few_validation_rows(self.task, self.settings):
                warn(few)
            return self._constant(steps)
        rho1, rho1_end = rho1_of(len(self.task.train), self.settings, steps), self.settings.pretrain.rho1_end
        if rho1_end is None:
            mix = Interleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1)
        else:
            mix = AnnealedInterleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1, rho1_end, steps)
        if mix.task_before(steps) == 0:
            warn(f"{steps} steps end before the first task batch (pretrain.rho1 is {rho1})")
        return mix

    def mean(self, steps: int | None) -> Weighting:
        """A mix whose steps cost what those of the real one cost on average, whatever their number."""
        if not self._interleaves:
            return self._constant(steps)
        rho1, rho1_end = rho1_of(len(self.task.train), self.settings, steps), self.settings.pretrain.rho1_end
        if rho1_end is None:
            return Interleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1)
        return MeanInterleave(CORPUS_OBJECTIVE, TASK_OBJECTIVE, rho1, rho1_end)

    @property
    def _interleaves(self) -> bool:
        return self.settings.pretrain.weighting == "interleave" and len(self.objectives) > 1

    def _constant(self, steps: int | None) -> Weighting:
        """A rule that is the same at all steps."""
        rule = self.settings.pretrain.weighting
        used = self.settings.used_objectives
        weights = [used[name].weight for name in self.objectives]
        if rule == "meta":
            return self._meta(steps)
        if rule in ("alternate", "sequence") and len(self.objectives) > 1:
            return Alternate(*self.objectives, weights=weights)
        return Equal(*self.objectives, weights=weights)

    def _meta(self, steps: int | None) -> Weighting:
        used = self.settings.used_objectives
        return meta_rule(
            list(self.objectives),
            next(name for name in self.objectives if used[name].sees_labels),
            self.task,
            self.packed,
            self.network,
            self.settings,
            self.context,
            head=pretrain_head(self.settings),
            steps=steps,
        )
