"""The task itself, on its texts without masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endtask.objectives.base import BuiltObjective, Objective, objectives

if TYPE_CHECKING:
    from endtask.config import ObjectiveSettings
    from endtask.objectives.context import BuildContext


@objectives.register("task")
class TaskLossObjective(Objective):
    """the task on its texts as they are"""

    texts = ("task",)
    labels = True

    def build(self, name: str, section: ObjectiveSettings, run: BuildContext) -> BuiltObjective:
        """Return the loss of the end task, or of an auxiliary task."""
        return run.task_objective(name, section, masked=False)
