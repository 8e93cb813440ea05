"""TLM's task batches: the task and masked LM on the same masked text (TLM, Eq. 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from endtask.objectives.base import BuiltObjective, Objective, PartConfig, objectives

if TYPE_CHECKING:
    from endtask.config import ObjectiveSettings
    from endtask.objectives.context import BuildContext


@objectives.register("joint")
class JointObjective(Objective):
    """the task and `rho2` times masked LM on one masked text"""

    texts = ("task",)
    labels = True
    masks = True

    class Config(PartConfig):
        """How much masked LM counts."""

        rho2: float = Field(20.0, ge=0, description="weight of masked LM against the task loss in task batches")

    config: Config

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return both losses over the texts of the task."""
        from endtask.objectives.task_losses import JointTask

        return JointTask(run.task_objective(name, section, masked=True), rho2=self.config.rho2)
