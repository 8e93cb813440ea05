"""Base class of stages, their input data, and their fingerprints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, ClassVar

from endtask.config import Settings
from endtask.config.section import Section, non_defaults
from endtask.corpus import Corpus
from endtask.io.digests import fingerprint
from endtask.io.stage_folder import StageFolder
from endtask.task import Task

Counts = dict[str, Any]
Finished = Mapping[str, Path]
"""The folders of the stages by name."""


@dataclass(frozen=True)
class RunData:
    """The data that the stages read.

    `settings` has the paths of files on this machine; `requested` has the settings as the user wrote them.
    """

    task: Task
    corpus: Corpus | None
    settings: Settings
    requested: Settings

    def contamination_check(self) -> Callable[[str], bool] | None:
        """Return a function that detects dev or test text in a text; None if the filter is off."""
        if not self.settings.retrieve.contamination_filter:
            return None
        from endtask.retrieval.contamination import ContaminationFilter
        from endtask.retrieval.retrieve import evaluation_texts

        return ContaminationFilter.of(evaluation_texts(self.task)).confirm


class Stage(ABC):
    """A step of a run that turns folders into a folder."""

    name: ClassVar[str]
    parallel: ClassVar[bool] = False
    """Whether all processes that torchrun started run the stage together; else the first one runs it."""
    reads_files_of: ClassVar[str | None] = None
    """The earlier stage whose files this stage reads and a bundle may leave out."""

    @abstractmethod
    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the dotted keys of the settings that the stage reads."""

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the external inputs that the stage reads, such as `task` and `corpus`."""
        return ()

    def inputs_opened(self, settings: Settings) -> tuple[str, ...]:
        """Return the external inputs whose files the stage opens and a bundle does not copy."""
        return ()

    @abstractmethod
    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the results to the stage's folder and return counts for the manifest."""


SCHEMA_VERSION = 1
"""Increase it when a default value or the meaning of a setting changes: runs then redo older stages."""


def stage_fingerprint(stage: Stage, settings: Settings, inputs: Mapping[str, str]) -> str:
    """Return the hash of a stage: its settings that differ from the defaults, and the digests of its inputs."""
    return fingerprint(stage.name, SCHEMA_VERSION, changed_values(stage, settings), dict(inputs))


def changed_values(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return the settings that a stage reads and that differ from the defaults, by dotted key."""
    values = {key: _changed(settings, key) for key in stage.settings_read(settings)}
    return {key: value for key, value in values.items() if value is not None}


def values_read(stage: Stage, settings: Settings) -> dict[str, Any]:
    """Return all settings that a stage reads, by dotted key; the manifest shows them to users."""
    tree = settings.model_dump(mode="json")
    return {key: reduce(getitem, key.split("."), tree) for key in stage.settings_read(settings)}


def _changed(settings: Settings, key: str) -> Any:
    """Return the value at a key without its default values; None if all have their default."""
    *parents, last = key.split(".")
    section: Any = reduce(getattr, parents, settings)
    value = getattr(section, last)
    if isinstance(value, Section):
        return non_defaults(value) or None
    return non_defaults(section).get(last)
