"""The processes that wait while the first one runs the stages, and take part in some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from endtask.executors.process_group import MODULE, take_part
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stage import RunData, Stage
from endtask.processes import current_processes

_NO_STAGE: dict[str, Any] = {}


class Followers:
    """Calls the other processes to the stages that all run together; with one process it does nothing."""

    def __init__(self) -> None:
        self._processes = current_processes()
        self._take_part = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let the others go at the end of the block; after an error in a common stage they end by themselves."""
        try:
            yield
        finally:
            if not self._take_part:
                self._processes.shared(_NO_STAGE)

    @contextmanager
    def taking_part(self, part: Stage, stage: StageFolder) -> Iterator[None]:
        """Run a stage of several processes in the block."""
        self._take_part = part.parallel and self._processes.count > 1
        if self._take_part:
            self._processes.shared({"stage": stage.name, "fingerprint": stage.fingerprint})
        yield
        self._take_part = False


def follow(run: Path, data: RunData, parts: Mapping[str, Stage]) -> None:
    """Take part in the stages and the jobs that the first process calls, until it calls none any more."""
    finished = {name: run / name for name in parts}
    while called := current_processes().shared(_NO_STAGE):
        if MODULE in called:
            take_part(called)
            continue
        stage = StageFolder(run, called["stage"], called["fingerprint"], {}, {})
        parts[called["stage"]].run(data, stage, finished)
