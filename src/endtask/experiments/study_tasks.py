"""From a study file to its experiments: one for each task, with resolved settings and a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.config import Settings, read_tree
from endtask.errors import InputError, did_you_mean
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, check_few_shot
from endtask.experiments.spec import Study, TaskSpec
from endtask.experiments.variants import Presets

LoadSettings = Callable[[dict[str, Any], str | None], Settings]
"""Returns settings from nested values of a study and a preset; it adds the settings file and flags."""


@dataclass(frozen=True)
class TaskStudy:
    """A study on one task: `name` is "" if the study lists no tasks."""

    name: str
    settings: Settings
    study: Study
    presets: Presets


def is_study_file(path: Path) -> bool:
    """Return whether a file holds a study and not the settings of a run: some key is a study's alone."""
    if not path.is_file() or path.suffix not in (".yaml", ".yml", ".json"):
        return False
    return not (Study.model_fields.keys() - Settings.model_fields.keys()).isdisjoint(read_tree(path))


def study_tasks(study: Study, load: LoadSettings, only: Sequence[str] = ()) -> list[TaskStudy]:
    """Return the study of each task, or of those in `only`; the folder of a named task is below that of the study."""
    for name in only:
        if name not in study.tasks:
            raise InputError(f"the study has no task {name!r}", key="tasks", hint=did_you_mean(name, study.tasks))
    tasks = {name: task for name, task in study.tasks.items() if not only or name in only}
    found = [_task_study(study, name, task, load) for name, task in tasks.items()]
    return found or [_task_study(study, "", TaskSpec(), load)]


def _task_study(study: Study, name: str, task: TaskSpec, load: LoadSettings) -> TaskStudy:
    values = {**study.settings, **task.values}
    preset = values.pop("preset", None)
    tree = nested(values)

    def loaded(preset: str | None) -> Settings:
        settings = load(tree, preset)
        return settings.model_copy(update={"output_dir": f"{settings.output_dir}/{name}"}) if name else settings

    others = sorted({spec.preset for spec in study.variants.values() if spec.preset is not None})
    chosen = study.only
    if task.variants is not None:
        chosen = tuple(each for each in task.variants if study.only is None or each in study.only)
    tables = {key: table for key, table in study.tables.items() if table.tasks is None or name in table.tasks}
    changes: dict[str, Any] = {"tasks": {}, "only": chosen, "tables": tables, "settings": {}, "variables": {}}
    if study.few_shot is not None:
        changes["few_shot"] = _few_shot_of(study.few_shot, name, task)
    return TaskStudy(
        name,
        loaded(task.preset or preset),
        study.model_copy(update=changes),
        {each: loaded(each) for each in others},
    )


def _few_shot_of(spec: FewShotSpec, name: str, task: TaskSpec) -> FewShotSpec:
    """Return the section `few_shot` with the task's own values and the tables that are for it."""
    tables = {key: table for key, table in spec.tables.items() if table.tasks is None or name in table.tasks}
    return check_few_shot({**spec.model_copy(update={"tables": tables}).model_dump(), **task.few_shot})


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return dotted keys as a nested mapping.

    >>> nested({"seed": 1, "pretrain.rho1": 3, "pretrain.rho2": 20})
    {'seed': 1, 'pretrain': {'rho1': 3, 'rho2': 20}}
    """
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *above, last = key.split(".")
        below = tree
        for name in above:
            below = below.setdefault(name, {})
        below[last] = value
    return tree
