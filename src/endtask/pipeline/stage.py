"""The contract of stages: a stage turns folders into a folder, and names the settings and external inputs it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
    """What the stages read.

    The paths of `settings` lead to files on this machine; `requested` are the settings as the user wrote them.
    """

    task: Task
    corpus: Corpus | None
    settings: Settings
    requested: Settings

    def contamination_check(self) -> Callable[[str], bool] | None:
        """Return a function that tells whether a text contains a dev or test text; None where the filter is off."""
        if not self.settings.retrieve.contamination_filter:
            return None
        from endtask.retrieval.contamination import ContaminationFilter
        from endtask.retrieval.retrieve import evaluation_texts

        return ContaminationFilter.of(evaluation_texts(self.task)).confirm


class Stage(ABC):
    """One step of a run. Settings of earlier stages count through their fingerprints."""

    name: ClassVar[str]
    reads_files_of: ClassVar[str | None] = None
    """The earlier stage whose files this one reads, where a bundle may leave them out."""

    @abstractmethod
    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the dotted keys of the settings that the stage reads."""

    def inputs_read(self, settings: Settings) -> tuple[str, ...]:
        """Return the external inputs that the stage reads, such as `task` and `corpus`."""
        return ()

    def inputs_opened(self, settings: Settings) -> tuple[str, ...]:
        """Return the external inputs whose files the stage opens and that a bundle does not copy."""
        return ()

    @abstractmethod
    def run(self, data: RunData, stage: StageFolder, finished: Finished) -> Counts:
        """Write the results to the stage's folder and return counts for the manifest."""
