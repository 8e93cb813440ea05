"""What a stage is: it turns folders into a folder, and says which settings and external inputs it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from endtask.config import Settings
from endtask.corpus import Corpus
from endtask.io.stage_folder import StageFolder
from endtask.task import Task

Counts = dict[str, Any]
Finished = Mapping[str, Path]
"""The folders of the stages by name."""


@dataclass(frozen=True)
class RunData:
    """What the stages read; the paths of `settings` lead to files on this machine, `requested` is as the user wrote it."""

    task: Task
    corpus: Corpus | None
    settings: Settings
    requested: Settings


class Stage(ABC):
    """One step of a run. Settings of earlier stages count through their fingerprints."""

    name: ClassVar[str]

    @abstractmethod
    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the dotted keys of the settings that the stage reads."""

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the external inputs that the stage reads, such as `task` and `corpus`."""
        return ()

    @abstractmethod
    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Do the work in the stage's folder and return counts for the manifest."""
