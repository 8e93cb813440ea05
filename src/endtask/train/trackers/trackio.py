"""trackio: a local database, or the Hugging Face Space that the user's environment names."""

from __future__ import annotations

import secrets
from importlib import import_module

from endtask.train.trackers.base import PROJECT, Memory, TrackedRun


class Trackio:
    """Sends curves and settings to trackio's database, or to the Space in TRACKIO_SPACE_ID."""

    library = "trackio"
    package = "trackio"

    def __init__(self, run: TrackedRun) -> None:
        self._memory = Memory(run.folder / "trackio.json")
        # trackio finds a run by its name, so the name must be nobody else's.
        name = self._memory.id or self._memory.keep_id(f"{run.name}-{secrets.token_hex(4)}")
        self._run = import_module(self.library).init(
            project=PROJECT, name=name, resume="allow", config=dict(run.settings)
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        if fresh := self._memory.unsent(step, values):
            self._run.log(fresh, step=step)

    def close(self, finished: bool) -> None:
        self._run.finish()
