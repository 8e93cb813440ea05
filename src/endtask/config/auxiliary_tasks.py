"""Settings of auxiliary tasks that share the encoder with the end task: their names, and what learns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from endtask.config.objectives import (
    CORPUS_OBJECTIVE,
    TASK_OBJECTIVE,
    Objectives,
    ObjectiveSettings,
    check_names,
    is_tlm,
)
from endtask.errors import did_you_mean

if TYPE_CHECKING:
    from endtask.config.root import Settings

TAKEN_NAMES = ("task", "mlm", CORPUS_OBJECTIVE, TASK_OBJECTIVE)
"""Names that curves of the end task have in one stage or the other."""


def objectives_with_tasks(settings: Settings) -> Objectives:
    """Return what pre-training learns: TLM's two objectives and one for each of `tasks`, unless the user names others.

    A weighting for TLM's two alone, such as `interleave`, leaves the tasks to fine-tuning.
    """
    train, usual = settings.pretrain, settings.pretrain.used_objectives
    if not settings.tasks or settings.skip_pretraining or not is_tlm(train.objectives) or train.weighting.part.tlm_only:
        return usual
    if not settings.has_selection:
        usual.pop(CORPUS_OBJECTIVE, None)
    auxiliary = {name: ObjectiveSettings(kind="task", task=name) for name in settings.tasks}
    if train.weighting.part.sequential and TASK_OBJECTIVE in usual:
        auxiliary[TASK_OBJECTIVE] = usual.pop(
            TASK_OBJECTIVE
        )  # the end task comes last: its head has to fit the last weights
    return {**usual, **auxiliary}


def check_tasks(settings: Settings) -> None:
    """Refuse names that cannot be, tasks without data, and those that nothing learns."""
    tasks, train = settings.tasks, settings.pretrain
    check_names(tasks, "tasks")
    for name, one in tasks.items():
        if name in TAKEN_NAMES:
            raise ValueError(f"tasks: {name!r} stands for the end task or its texts; choose another name")
        if not one.path:
            raise ValueError(f"tasks.{name}.path: say where the labelled data is")
    for name, objective in train.objectives.items():
        _check_objective(name, objective, tasks)
    if settings.finetune.tasks == "all" and not tasks:
        raise ValueError("finetune.tasks: there are no auxiliary tasks; name them under `tasks`")
    if not settings.skip_finetuning and settings.finetune.tasks == "all":
        _check_keep_better(settings)
    elif not settings.skip_pretraining:
        _check_learned(settings)


def _check_objective(name: str, objective: ObjectiveSettings, tasks: Mapping[str, Any]) -> None:
    if objective.task is None or objective.task in tasks:
        return
    hint = did_you_mean(objective.task, tasks) if tasks else "there are none under `tasks`"
    raise ValueError(f"pretrain.objectives.{name}.task: there is no task {objective.task!r}; {hint}")


def _check_keep_better(settings: Settings) -> None:
    """What pre-training made may be kept only where it answers every task that is scored."""
    if not settings.finetune.keep_better:
        return
    for name in settings.tasks:
        if name not in settings.learned_tasks:
            last = " last" if settings.pretrain.weighting.part.sequential else ""
            raise ValueError(
                f"finetune.keep_better: pre-training does not learn {name}{last}, whose head may be saved untrained; "
                "leave it off, or set finetune.tasks: main"
            )


def _check_learned(settings: Settings) -> None:
    """A task that stands by with weight 0 is meant so."""
    named = {**settings.pretrain.objectives, **settings.used_objectives}
    learned = {objective.learned_task for objective in named.values()}
    for name in settings.tasks:
        if name not in learned:
            raise ValueError(
                f"tasks.{name}: nothing learns it; {_remedy(name, settings)}, or set {_finetuning(settings)}"
            )


def _remedy(name: str, settings: Settings) -> str:
    if settings.pretrain.weighting.part.tlm_only:
        return "pretrain.weighting: interleave trains two objectives, use equal, alternate or meta"
    return f"add pretrain.objectives.{name}: {{kind: task, task: {name}}}"


def _finetuning(settings: Settings) -> str:
    """What is missing for a fine-tuning that learns all tasks."""
    requested = {
        "skip_finetuning: false": str(settings.skip_finetuning).lower(),
        "finetune.tasks: all": settings.finetune.tasks,
    }
    return " and ".join(setting for setting, value in requested.items() if not setting.endswith(f" {value}"))
