"""TensorBoard: event files in the run's folder; nothing leaves the machine."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from endtask.train.trackers.base import TrackedRun


class TensorBoard:
    """Writes event files for `tensorboard --logdir`.

    A phase that goes on after a kill, or goes back to a checkpoint, repeats steps. From its first row it writes a new
    file, which tells readers to hide what earlier ones hold from that step on.
    """

    library = "torch.utils.tensorboard"
    package = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        self._folder, self._settings = run.folder / "tensorboard", run.settings
        self._writer: Any = None
        self._step = 0

    def log(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None or step < self._step:
            self._open(step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, global_step=step)
        self._writer.flush()  # a kill must lose no row of before the checkpoint: those are not written again
        self._step = step

    def close(self, finished: bool) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open(self, step: int) -> None:
        self.close(finished=False)
        first = not self._folder.exists()
        self._writer = import_module(self.library).SummaryWriter(log_dir=str(self._folder), purge_step=step)
        if first:
            settings = json.dumps(self._settings, indent=2, ensure_ascii=False, default=str)
            self._writer.add_text("settings", f"```\n{settings}\n```")
