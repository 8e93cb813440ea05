"""A study: what an experiment runs, as a YAML file or flags give it.

    # endtask compare studies/tartan.yaml --output runs/tartan --devices 0,0
    variables: {data: ../shared/data}           # ${data} below; --var data=/elsewhere exchanges it
    settings:                                   # what every trial starts from, dotted or nested
      preset: mt-tartan-scratch
      budget: 300steps
      domain.amount: 10x
    tasks:                                      # each has its own folder OUTPUT/NAME and its own tables
      sciie: {task.path: "${data}/tasks/sciie", evaluate.metric: macro_f1, corpus.sources: [...]}
      chemprot: {task.path: "${data}/tasks/chemprot", evaluate.metric: micro_f1, variants: [plain, tapt]}
    shared_tokenizer: {domain.amount: all}      # a run with these settings is packed first; all use its tokenizer
    variants:                                   # settings in which each differs, and its title in tables
      plain: &anew {title: plain fine-tuning, skip_pretraining: true, finetune.head: new}
      tapt: {title: TAPT, pretrain.objectives.task.weight: 0, finetune.head: new}
      meta: {title: META, pretrain.weighting: meta}
      paper: {preset: tlm-small, budget: 570steps}     # from another preset, with the same `settings` and task
    grid:                                       # one variant for every combination
      pretrain.rho1: [1, 19]                       # a setting and its values
      schedule: {short: {budget: 100steps}, long: {budget: 900steps}}   # or named sets of settings
    seeds: [0, 1, 2]                            # of pre-training; a run for each
    finetune_seeds: [0]                         # in every run; a variant may have its own finetune.seeds
    baselines: [majority, tfidf, no_corpus]     # unset: all that apply; []: none
    against: tapt                               # the variant all others are tested against
    by: test                                    # dev: no run looks at test
    tables:                                     # unset: one table of everything
      main: {title: "Table 1", variants: [plain, tapt, meta], against: tapt}
      learned: {variants: [meta, tapt], tasks: [sciie]}
    devices: [0, 0]                             # GPUs; one named twice runs two trials at a time

`endtask few-shot studies/alignment.yaml` pre-trains the variants of every task and trains them further on few labels:

    settings: {budget: 1500steps, ...}
    tasks:
      ct: {task.path: "${data}/ct"}
      ad: {task.path: "${data}/ad", few_shot: {folds: 5}}    # values of `few_shot` for this task alone
    variants:
      768x3: {model.size: 768x3}
      768x3-plain: {model.size: 768x3, pretrain.objectives.hyperlinks.weight: 0}
    few_shot:
      seeds: [0, 1]
      held_out: 0.2
      tables:                                   # unset: every variant x train x head x tasks, against the first
        "2":
          title: numbers of labels
          labels: [50, 100, 200]
          rows:
            - {variant: 768x3-plain, title: without hyperlinks}
            - {variant: 768x3, head: keep, epochs: 1000, patience: 30}
            - {variant: 768x3, train: transformer, tasks: all, learning_rates: [1.0e-4]}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from endtask.config.loading import read_tree
from endtask.config.messages import explain
from endtask.config.section import Section, infinity_in_words
from endtask.errors import InputError, did_you_mean
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.io.nested import flatten

UNTRAINED_BASELINES = ("majority", "tfidf")
TRAINED_BASELINES = ("no_corpus", "random", "checkpoint")
BASELINES = (*UNTRAINED_BASELINES, *TRAINED_BASELINES)

Tree = dict[str, Any]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _Overrides(Section):
    """Settings by dotted key, next to keys that are no settings."""

    preset: str | None = Field(None, description="the preset to start from instead of the study's")
    values: Tree = Field({}, description="settings by dotted key")

    @model_validator(mode="before")
    @classmethod
    def settings_are_values(cls, given: Any) -> Any:
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            return given
        own = {key: value for key, value in given.items() if key in cls.model_fields and key != "values"}
        settings = {key: value for key, value in given.items() if key not in cls.model_fields}
        return {**own, "values": {**dotted(given.get("values") or {}), **dotted(settings)}}


class VariantSpec(_Overrides):
    """A variant: the settings in which it differs, and its title in tables."""

    title: str | None = Field(None, description="its name in tables and pages; unset: its key")


class TaskSpec(_Overrides):
    """A task of a study: its settings, the variants it is trained with, and values of `few_shot` of its own."""

    variants: Names | None = Field(None, description="some of the variants; unset: all")
    few_shot: Tree = Field({}, description="values of the section `few_shot` for this task alone")


class TableSpec(Section):
    """A table: some of the variants and baselines, and the one that the others are tested against."""

    title: str = Field("", description="the heading of the table")
    variants: Names = Field(description="names of variants and baselines, in order")
    against: str | None = Field(None, description="the variant the others are tested against; unset: the study's")
    tasks: tuple[str, ...] | None = Field(None, description="the tasks it is shown for; unset: all")


class Study(Section):
    """Variants x pre-training seeds x fine-tuning seeds on one or several tasks, with baselines."""

    variables: dict[str, str] = Field({}, description="name: text that replaces ${name} anywhere in the study")
    settings: Tree = Field({}, description="settings that every trial starts from, dotted or nested")
    tasks: dict[str, TaskSpec] = Field({}, description="name: settings of a task; unset: the settings' own task")
    shared_tokenizer: Tree | None = Field(
        None, description="settings of a run that is packed first and whose tokenizer all variants use"
    )
    variants: dict[str, VariantSpec] = Field({}, description="name: settings in which the variant differs")
    grid: dict[str, tuple[Any, ...] | dict[str, Tree | None]] = Field(
        {}, description="setting: values, or name: named sets of settings; a variant for every combination"
    )
    only: Names | None = Field(None, description="the variants to run; unset: all")
    seeds: Seeds | None = Field(None, description="of pre-training, a run for each; unset: the settings' one")
    finetune_seeds: Seeds | None = Field(None, description="of fine-tuning, in every run; unset: the settings' own")
    baselines: dict[str, Tree] | None = Field(
        None, description="a list of names, or name: settings to override; unset: all that apply; []: none"
    )
    checkpoint: str | None = Field(None, description="what the baseline `checkpoint` fine-tunes, as for model.path")
    checkpoint_note: str | None = Field(None, description="what readers of its row should know, such as its training")
    against: str | None = Field(None, description="the variant all others are tested against; unset: the first")
    by: Literal["test", "dev"] = Field("test", description="dev: no run looks at test")
    tables: dict[str, TableSpec] = Field({}, description="name: a table; unset: one table of everything")
    devices: tuple[str, ...] = Field((), description="GPUs to train on; one named twice runs two trials at a time")
    few_shot: FewShotSpec | None = Field(None, description="how `endtask few-shot` trains on few labels")

    @field_validator("variants", "baselines", mode="before")
    @classmethod
    def lists_are_names(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            repeated = next((name for name, count in Counter(map(str, given)).items() if count > 1), None)
            if repeated is not None:
                raise ValueError(f"{repeated!r} is listed twice")
            return {str(name): {} for name in given}
        if not isinstance(given, Mapping):
            return given
        return {str(name): {} if values is None else values for name, values in given.items()}

    @field_validator("devices", mode="before")
    @classmethod
    def devices_are_text(cls, given: Any) -> Any:
        return [str(device) for device in given] if isinstance(given, list | tuple) else given

    @field_validator("settings", "shared_tokenizer")
    @classmethod
    def keys_are_dotted(cls, given: Tree | None) -> Tree | None:
        return dotted(given) if given is not None else None

    @field_validator("baselines")
    @classmethod
    def baselines_are_known(cls, given: dict[str, Tree] | None) -> dict[str, Tree] | None:
        for name, values in (given or {}).items():
            if name not in BASELINES:
                raise ValueError(f"unknown baseline {name!r} ({did_you_mean(name, BASELINES)})")
            if values and name in UNTRAINED_BASELINES:
                raise ValueError(f"{name} has no settings to override")
        return {name: dotted(values) for name, values in given.items()} if given is not None else None

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
    """Check a nested mapping against the typed study; `where` names the file in messages.

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
    """Read a study from a YAML or JSON file; `variables` exchange those of the file."""
    if not path.is_file():
        raise InputError("no such study file", path=path)
    tree = read_tree(path)
    known = {**(tree.get("variables") or {}), **(variables or {})}
    return check_study(_substituted({**tree, "variables": known}, known, path), str(path))


def _substituted(value: Any, variables: Mapping[str, Any], path: Path) -> Any:
    """Return a nested value with `${name}` replaced in all of its texts."""
    if isinstance(value, Mapping):
        return {key: _substituted(below, variables, path) for key, below in value.items()}
    if isinstance(value, list):
        return [_substituted(item, variables, path) for item in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        if name not in variables:
            raise InputError(f"unknown variable {name!r}", path=path, hint=did_you_mean(name, variables))
    return _VARIABLE.sub(lambda found: str(variables[found[1]]), value)
