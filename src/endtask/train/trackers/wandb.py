"""Weights & Biases."""

from __future__ import annotations

import os
import secrets
from importlib import import_module

from endtask.train.trackers.base import PROJECT, Memory, TrackedRun


class WeightsAndBiases:
    """Sends curves and settings to the server that the user's own W&B login and environment name.

    WANDB_MODE, WANDB_PROJECT, WANDB_DIR and the rest are respected; where WANDB_MODE is unset, W&B's own default holds,
    which is to send at once. Code, git state and printed lines stay here, though W&B would take them by default.
    """

    library = "wandb"
    package = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        wandb = import_module(self.library)
        self._memory = Memory(run.folder / "wandb.json")
        self._run = wandb.init(
            # Kept before the run exists: a kill between the two must not make a second one.
            id=self._memory.id or self._memory.keep_id(secrets.token_hex(8)),
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            dir=os.environ.get("WANDB_DIR", str(run.folder)),
            config=dict(run.settings),
            settings=wandb.Settings(console="off", disable_code=True, disable_git=True),
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        if fresh := self._memory.unsent(step, values):
            self._run.log(fresh, step=step)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
