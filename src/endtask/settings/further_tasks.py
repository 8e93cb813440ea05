"""Settings of further tasks that share the body with the end task: their names, and what learns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from endtask.errors import did_you_mean
from endtask.settings.objectives import EXTERNAL, INTERNAL, ObjectiveSettings, check_names, tlm_objectives

if TYPE_CHECKING:
    from endtask.settings.sections import Settings

TAKEN_NAMES = ("task", "mlm", EXTERNAL, INTERNAL)
"""Names that curves of the end task have in one stage or the other."""


def with_objectives(given: Any) -> Any:
    """Settings as given, where nobody said what stage 1 learns with an objective for each of `tasks` beside TLM's two.

    `interleave` has no turns for more than two; then the tasks are left to fine-tuning.
    """
    if not isinstance(given, Mapping) or not isinstance(given.get("tasks"), Mapping) or not given["tasks"]:
        return given
    try:
        train, select, corpus = (dict(given.get(name) or {}) for name in ("train", "select", "corpus"))
    except (TypeError, ValueError):  # no section at all, which the check of the type has words for
        return given
    said = train.get("objectives") or train.get("weighting", "interleave") == "interleave"
    if said or given.get("stage1") == "none":
        return given
    usual = tlm_objectives(with_task=train.get("rho1") != "inf")
    selector = select.get("selector")
    if selector == "none" or not (corpus.get("sources") or selector == "imported"):
        del usual[EXTERNAL]  # what is named must have text; TLM's own objective goes unsaid where there is none
    further = {name: {"kind": "task", "task": name} for name in given["tasks"]}
    return {**given, "train": {**train, "objectives": {**usual, **further}}}


def check_tasks(settings: Settings) -> None:
    """Refuse names that cannot be, tasks without data, and those that nothing learns."""
    tasks, train = settings.tasks, settings.train
    check_names(tasks, "tasks")
    for name, one in tasks.items():
        if name in TAKEN_NAMES:
            raise ValueError(f"tasks: {name!r} stands for the end task or its texts; choose another name")
        if not one.path:
            raise ValueError(f"tasks.{name}.path: say where the labelled data is")
    for name, objective in train.objectives.items():
        _check_objective(name, objective, tasks)
    together = settings.stage2 == "finetune" and settings.finetune.tasks == "all"
    if settings.finetune.tasks == "all" and not tasks:
        raise ValueError("finetune.tasks: there are no further tasks; name them under `tasks`")
    if settings.stage1 == "none" or together:
        return
    named = {objective.learned_task for objective in train.objectives.values()}
    for name in tasks:
        if name not in named:
            raise ValueError(f"tasks.{name}: nothing learns it; {_remedy(name, settings)}, or set finetune.tasks: all")


def _check_objective(name: str, objective: ObjectiveSettings, tasks: Mapping[str, Any]) -> None:
    if objective.task is None or objective.task in tasks:
        return
    hint = did_you_mean(objective.task, tasks) if tasks else "there are none under `tasks`"
    raise ValueError(f"train.objectives.{name}.task: there is no task {objective.task!r}; {hint}")


def _remedy(name: str, settings: Settings) -> str:
    if settings.train.weighting == "interleave":
        return "train.weighting: interleave takes turns between two objectives, use equal, alternate or meta"
    return f"add train.objectives.{name}: {{kind: task, task: {name}}}"
