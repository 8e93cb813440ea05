"""Settings of the objectives of pre-training, and of auxiliary tasks, which objectives or fine-tuning learn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from endtask.config.budget import BatchSize
from endtask.config.data import TaskSettings
from endtask.config.section import Fraction, PartSection, PositiveNumber, Warmup
from endtask.errors import did_you_mean
from endtask.registry import Registry, objectives

CORPUS_OBJECTIVE, TASK_OBJECTIVE = "corpus", "task"
"""TLM's two objectives."""
TLM_OBJECTIVES: dict[str, dict[str, str]] = {
    CORPUS_OBJECTIVE: {"kind": "mlm", "texts": "selection"},
    TASK_OBJECTIVE: {"kind": "joint"},
}
"""The default objectives."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_CURVES = ("weight", "cosine", "dev", "reselect")  # prefixes of other curves in metrics.jsonl


class ObjectiveSettings(PartSection):
    """One objective of pre-training: its kind, the options of this kind, and the texts that it reads."""

    registry: ClassVar[Registry[Any]] = objectives
    part_key: ClassVar[str] = "kind"

    kind: str = Field(description="the objective")
    texts: Literal["task", "selection", "domain", "aligned"] | None = Field(
        None,
        description="what is read: the task's train texts (TAPT), the selection (TLM), the `domain` (DAPT) or "
        "the sources of `aligned`; unset: what the kind reads, if it reads only one kind",
    )
    task: str | None = Field(
        None, description="which of the auxiliary `tasks` is learned or read; unset: the end task, `task`"
    )
    weight: float = Field(
        1.0,
        ge=0,
        description="its weight in `equal`, the initial weight in `meta`, its share of the steps in `alternate` and "
        "`sequence`; 0: not trained",
    )
    batch_size: BatchSize | None = Field(None, description="unset: pretrain.batch_size")
    dropout: Fraction | None = Field(None, description="dropout for this objective; unset: pretrain.dropout")
    learning_rate: PositiveNumber | None = Field(
        None, description="peak learning rate of this objective's part of a `sequence`; unset: pretrain.learning_rate"
    )
    warmup_steps: Warmup | None = Field(
        None, description="warm-up of this objective's part of a `sequence`; unset: pretrain.warmup_steps"
    )

    @model_validator(mode="after")
    def texts_fit_kind(self) -> ObjectiveSettings:
        readable = self.part_class.texts
        if self.texts is None and len(readable) > 1:
            raise ValueError(f"texts: say what {self.kind} reads: {', '.join(readable)}")
        if self.texts is not None and self.texts not in readable:
            raise ValueError(f"texts: {self.kind} reads {' or '.join(readable)}, not {self.texts}")
        if self.task is not None and self.reads != "task":
            raise ValueError(f"task: this {self.kind} reads {self.reads}, not the texts of a task")
        return self

    @property
    def reads(self) -> str:
        """The texts that it reads: those of the setting, or the only ones that the kind can read."""
        texts: str = self.texts or self.part_class.texts[0]
        return texts

    @property
    def sees_labels(self) -> bool:
        """Whether it learns from the labels of the end task's train split."""
        return bool(self.part_class.labels) and self.task is None

    @property
    def reads_train(self) -> bool:
        """Whether it reads the texts of the end task's train split, with or without their labels."""
        return self.reads == "task" and self.task is None

    @property
    def learned_task(self) -> str | None:
        """The auxiliary task whose head it trains, if any."""
        return self.task if self.part_class.labels else None


Objectives = dict[str, ObjectiveSettings]


def tlm_objectives() -> Objectives:
    """Return TLM's objectives: masked LM on the selection, and the task with masked LM on its texts.

    >>> list(tlm_objectives())
    ['corpus', 'task']
    """
    return {name: ObjectiveSettings.model_validate(tree) for name, tree in TLM_OBJECTIVES.items()}


def with_tlm_kinds(value: Any) -> Any:
    """Return `pretrain.objectives` with the kinds of TLM's two objectives added where only options are set.

    >>> with_tlm_kinds({"task": {"rho2": 1}})
    {'corpus': {'kind': 'mlm', 'texts': 'selection'}, 'task': {'kind': 'joint', 'rho2': 1}}
    """
    if not isinstance(value, Mapping) or not all(isinstance(section, Mapping) for section in value.values()):
        return value
    filled = {
        name: section if "kind" in section else {**TLM_OBJECTIVES.get(name, {}), **section}
        for name, section in value.items()
    }
    only_options = value.keys() <= TLM_OBJECTIVES.keys() and not any("kind" in section for section in value.values())
    if only_options:
        return {name: filled.get(name, section) for name, section in TLM_OBJECTIVES.items()}
    return filled


def is_tlm(named: Objectives) -> bool:
    """Whether these are TLM's two objectives, whatever their options: each is then left out where it has no text."""
    kinds = {name: (objective.kind, objective.reads, objective.task) for name, objective in named.items()}
    return kinds == {CORPUS_OBJECTIVE: ("mlm", "selection", None), TASK_OBJECTIVE: ("joint", "task", None)}


def no_name(name: Any) -> str:
    """Return why this cannot be the name of an objective or a task."""
    return f"{name!r} is no name; write letters (a to z), digits, - and _, a letter first"


def check_names(names: Iterable[str], key: str) -> None:
    """Raise `ValueError` for names that cannot be part of file names and curves."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{key}: {no_name(name)}")
        if name in _CURVES:
            raise ValueError(f"{key}: {name!r} is the name of a curve; choose another")


TAKEN_NAMES = ("task", "mlm", CORPUS_OBJECTIVE, TASK_OBJECTIVE)
"""Names that curves of the end task have in one stage or the other."""


def check_tasks(tasks: Mapping[str, TaskSettings], named: Objectives) -> None:
    """Raise `ValueError` for auxiliary tasks without a usable name or data, and for objectives of unknown tasks."""
    check_names(tasks, "tasks")
    for name, task in tasks.items():
        if name in TAKEN_NAMES:
            raise ValueError(f"tasks: {name!r} is a name of the end task or its texts; choose another name")
        if not task.path:
            raise ValueError(f"tasks.{name}.path: say where the labelled data is")
    for name, objective in named.items():
        if objective.task is not None and objective.task not in tasks:
            hint = did_you_mean(objective.task, tasks) if tasks else "there are none under `tasks`"
            raise ValueError(f"pretrain.objectives.{name}.task: there is no task {objective.task!r}; {hint}")
