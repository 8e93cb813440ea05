"""A study: the variants, seeds, tasks and tables of an experiment, from a YAML file or flags.

variables: {data: ../shared/data}           # ${data} below; --var data=/mnt/data replaces it
settings: {preset: mt-tartan-scratch, budget: 300steps}
tasks:                                      # each has a folder OUTPUT/NAME and tables
  sciie: {task.path: "${data}/tasks/sciie", evaluate.metric: macro_f1}
variants:                                   # the settings that differ, and the title in tables
  tapt: {title: TAPT, pretrain.objectives.task.weight: 0}
  meta: {title: META, pretrain.weighting: meta}
seeds: [0, 1, 2]                            # of pre-training; a run for each
tables:                                     # unset: one table of all variants
  main: {title: "Table 1", variants: [tapt, meta], against: tapt}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from endtask.config import Settings, read_tree
from endtask.config.messages import explain
from endtask.config.section import Section, Seed, infinity_in_words
from endtask.errors import InputError, did_you_mean
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, check_few_shot
from endtask.io.nested import flatten

UNTRAINED_BASELINES = ("majority", "tfidf")
TRAINED_BASELINES = ("no_corpus", "random", "checkpoint")
BASELINES = (*UNTRAINED_BASELINES, *TRAINED_BASELINES)

Tree = dict[str, Any]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _Overrides(Section):
    """Settings by dotted key, and keys that are not settings."""

    preset: str | None = Field(None, description="the preset to start from instead of the study's")
    values: Tree = Field({}, description="settings by dotted key")

    @model_validator(mode="before")
    @classmethod
    def settings_are_values(cls, tree: Any) -> Any:
        if tree is None:
            return {}
        if not isinstance(tree, Mapping):
            return tree
        fields = {key: value for key, value in tree.items() if key in cls.model_fields and key != "values"}
        settings = {key: value for key, value in tree.items() if key not in cls.model_fields}
        return {**fields, "values": {**dotted(tree.get("values") or {}), **dotted(settings)}}


class VariantSpec(_Overrides):
    """A variant: its settings that differ, and its title in tables."""

    title: str | None = Field(None, description="its name in tables and pages; unset: its key")


class TaskSpec(_Overrides):
    """A task of a study: its settings, its variants, and its values of `few_shot`."""

    variants: Names | None = Field(None, description="some of the variants; unset: all")
    few_shot: Tree = Field({}, description="values of the section `few_shot` for this task only")


class TableSpec(Section):
    """A table: some of the variants and baselines, and the variant that the others are tested against."""

    title: str = Field("", description="the heading of the table")
    variants: Names = Field(description="names of variants and baselines, in order")
    against: str | None = Field(None, description="the variant the others are tested against; unset: the study's")
    tasks: tuple[str, ...] | None = Field(None, description="the tasks that have the table; unset: all")


class Study(Section):
    """Variants x pre-training seeds x fine-tuning seeds on one or several tasks, with baselines."""

    variables: dict[str, str] = Field({}, description="name: text that replaces ${name} anywhere in the study")
    settings: Tree = Field({}, description="settings that every trial starts from, dotted or nested")
    tasks: dict[str, TaskSpec] = Field({}, description="name: settings of a task; unset: the task of the settings")
    shared_tokenizer: Tree | None = Field(
        None, description="settings of a run that is packed first and whose tokenizer all variants use"
    )
    variants: dict[str, VariantSpec] = Field({}, description="name: settings of the variant that differ")
    grid: dict[str, tuple[Any, ...] | dict[str, Tree | None]] = Field(
        {}, description="setting: values, or name: named sets of settings; a variant for every combination"
    )
    only: Names | None = Field(None, description="the variants to run; unset: all")
    seeds: Seeds | None = Field(None, description="of pre-training, a run for each; unset: the seed of the settings")
    finetune_seeds: Seeds | None = Field(
        None, description="of fine-tuning, in every run; unset: the seeds of the settings"
    )
    baselines: dict[str, Tree] | None = Field(
        None, description="a list of names, or name: settings to override; unset: all that apply; []: none"
    )
    checkpoint: str | None = Field(None, description="model that the baseline `checkpoint` fine-tunes, as model.path")
    checkpoint_note: str | None = Field(None, description="note on the row of this baseline, such as its training")
    against: str | None = Field(None, description="the variant all others are tested against; unset: the first")
    by: Literal["test", "dev"] = Field("test", description="dev: no run reads test")
    tables: dict[str, TableSpec] = Field({}, description="name: a table; unset: one table of all variants")
    devices: tuple[str, ...] = Field((), description="GPUs to train on; a repeated GPU runs two trials at a time")
    few_shot: FewShotSpec | None = Field(None, description="how `endtask few-shot` trains on few labels")

    @field_validator("variants", "baselines", mode="before")
    @classmethod
    def lists_are_names(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            repeated = next((name for name, count in Counter(map(str, value)).items() if count > 1), None)
            if repeated is not None:
                raise ValueError(f"{repeated!r} is listed twice")
            return {str(name): {} for name in value}
        if not isinstance(value, Mapping):
            return value
        return {str(name): {} if values is None else values for name, values in value.items()}

    @field_validator("devices", mode="before")
    @classmethod
    def devices_are_text(cls, devices: Any) -> Any:
        return [str(device) for device in devices] if isinstance(devices, list | tuple) else devices

    @field_validator("settings", "shared_tokenizer")
    @classmethod
    def keys_are_dotted(cls, tree: Tree | None) -> Tree | None:
        return dotted(tree) if tree is not None else None

    @field_validator("baselines")
    @classmethod
    def baselines_are_known(cls, baselines: dict[str, Tree] | None) -> dict[str, Tree] | None:
        if baselines is None:
            return None
        for name, values in baselines.items():
            if name not in BASELINES:
                raise ValueError(f"unknown baseline {name!r} ({did_you_mean(name, BASELINES)})")
            if values and name in UNTRAINED_BASELINES:
                raise ValueError(f"{name} has no settings to override")
        return {name: dotted(values) for name, values in baselines.items()}

    @field_validator("seeds", "finetune_seeds")
    @classmethod
    def seeds_are_unique(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        repeated = next((seed for seed, count in Counter(seeds or ()).items() if count > 1), None)
        if repeated is not None:
            raise ValueError(f"the seed {repeated} is listed twice, which would count as two runs")
        return seeds

    @field_validator("grid")
    @classmethod
    def axes_have_values(cls, grid: dict[str, Any]) -> dict[str, Any]:
        empty = next((key for key, values in grid.items() if not values), None)
        if empty is not None:
            raise ValueError(f"no values for {empty}")
        return {key: _axis(values) for key, values in grid.items()}


def _axis(values: tuple[Any, ...] | dict[str, Tree | None]) -> tuple[Any, ...] | dict[str, Tree]:
    if isinstance(values, dict):
        return {str(name): dotted(settings or {}) for name, settings in values.items()}
    return tuple(map(infinity_in_words, values))  # JSON has no infinity


def dotted(values: Mapping[str, Any]) -> Tree:
    """Return the values by dotted key; a key may be given only once, dotted or nested.

    >>> dotted({"pretrain": {"rho1": 19}, "tasks": {}})
    {'pretrain.rho1': 19, 'tasks': {}}
    """
    flat = flatten(values, keep_empty=True)  # `tasks: {}` is a change
    if len(flat) < _count_leaves(values):
        raise ValueError("a setting is given twice, dotted and nested")
    return {key: infinity_in_words(value) for key, value in flat.items()}  # JSON has no infinity


def _count_leaves(tree: Mapping[str, Any]) -> int:
    return sum(_count_leaves(value) if isinstance(value, Mapping) and value else 1 for value in tree.values())


def check_study(tree: Mapping[str, Any], where: str | None = None) -> Study:
    """Return the typed study of a nested mapping; `where` is the file in messages.

    >>> check_study({"baselines": ["tfdif"]}, "study.yaml")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: study.yaml, key 'baselines': unknown baseline 'tfdif' (did you mean 'tfidf'?)
    """
    try:
        return Study.model_validate(dict(tree))
    except ValidationError as error:
        raise explain(error, where, root=Study) from None


def read_study(path: Path, variables: Mapping[str, str] | None = None) -> Study:
    """Return the study in a YAML or JSON file; `variables` replace those of the file."""
    if not path.is_file():
        raise InputError("no such study file", path=path)
    tree = read_tree(path)
    values = {**(tree.get("variables") or {}), **(variables or {})}
    return check_study(_substituted({**tree, "variables": values}, values, path), str(path))


def _substituted(value: Any, variables: Mapping[str, Any], path: Path) -> Any:
    """Return a nested value with `${name}` replaced in all its texts."""
    if isinstance(value, Mapping):
        return {key: _substituted(item, variables, path) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(item, variables, path) for item in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if name not in variables:
            raise InputError(f"unknown variable {name!r}", path=path, hint=did_you_mean(name, variables))
    return _VARIABLE.sub(lambda match: str(variables[match[1]]), value)


Presets = Mapping[str, Settings]
"""The settings of a study with other presets, by the preset's name."""
LoadSettings = Callable[[dict[str, Any], str | None], Settings]
"""Returns settings from nested values of a study and a preset, with the settings file and flags."""


@dataclass(frozen=True)
class TaskStudy:
    """A study on one task: `name` is "" if the study lists no tasks."""

    name: str
    settings: Settings
    study: Study
    presets: Presets


def is_study_file(path: Path) -> bool:
    """Return whether a file has a key of studies that settings do not have."""
    if not path.is_file() or path.suffix not in (".yaml", ".yml", ".json"):
        return False
    return not (Study.model_fields.keys() - Settings.model_fields.keys()).isdisjoint(read_tree(path))


def study_tasks(study: Study, load: LoadSettings, only: Sequence[str] = ()) -> list[TaskStudy]:
    """Return the study of each task, or of those in `only`; a task's folder is in that of the study."""
    for name in only:
        if name not in study.tasks:
            raise InputError(f"the study has no task {name!r}", key="tasks", hint=did_you_mean(name, study.tasks))
    tasks = {name: task for name, task in study.tasks.items() if not only or name in only}
    studies = [_task_study(study, name, task, load) for name, task in tasks.items()]
    return studies or [_task_study(study, "", TaskSpec(), load)]


def _task_study(study: Study, name: str, task: TaskSpec, load: LoadSettings) -> TaskStudy:
    values = {**study.settings, **task.values}
    preset = values.pop("preset", None)
    tree = nested(values)

    def settings_with(preset: str | None) -> Settings:
        settings = load(tree, preset)
        return settings.model_copy(update={"output_dir": f"{settings.output_dir}/{name}"}) if name else settings

    only = study.only
    if task.variants is not None:
        only = tuple(variant for variant in task.variants if study.only is None or variant in study.only)
    tables = {key: table for key, table in study.tables.items() if table.tasks is None or name in table.tasks}
    changes: dict[str, Any] = {"tasks": {}, "only": only, "tables": tables, "settings": {}, "variables": {}}
    if study.few_shot is not None:
        changes["few_shot"] = _few_shot_of(study.few_shot, name, task)
    variant_presets = sorted({spec.preset for spec in study.variants.values() if spec.preset is not None})
    presets = {variant_preset: settings_with(variant_preset) for variant_preset in variant_presets}
    return TaskStudy(name, settings_with(task.preset or preset), study.model_copy(update=changes), presets)


def _few_shot_of(spec: FewShotSpec, name: str, task: TaskSpec) -> FewShotSpec:
    """Return the section `few_shot` with the task's values and tables."""
    tables = {key: table for key, table in spec.tables.items() if table.tasks is None or name in table.tasks}
    return check_few_shot({**spec.model_copy(update={"tables": tables}).model_dump(), **task.few_shot})


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return dotted keys as a nested mapping.

    >>> nested({"seed": 1, "pretrain.rho1": 3, "pretrain.rho2": 20})
    {'seed': 1, 'pretrain': {'rho1': 3, 'rho2': 20}}
    """
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *parents, last = key.split(".")
        section = tree
        for name in parents:
            section = section.setdefault(name, {})
        section[last] = value
    return tree
