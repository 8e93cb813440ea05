"""The executor that the settings name."""

from __future__ import annotations

from pathlib import Path

from endtask.config import Settings
from endtask.executors.base import Executor
from endtask.executors.processes import LocalExecutor
from endtask.io.digests import fingerprint
from endtask.io.machine import usable_cores


def executor_of(settings: Settings) -> Executor:
    """Return the executor of the cluster at `cluster.address`, or of this machine."""
    if settings.cluster.address is None:
        return LocalExecutor(settings.threads or usable_cores())
    from endtask.executors.ray_cluster import RayExecutor

    return RayExecutor(settings.cluster.address)


def scratch_folder(settings: Settings, default: Path) -> Path:
    """Return the folder of files between the passes: the given one, or one for this run in `cluster.scratch`."""
    folder = default
    if settings.cluster.scratch is not None:
        digest = fingerprint(str(default.absolute()))[:8]  # two runs must not delete each other's files
        folder = Path(settings.cluster.scratch) / f"{default.absolute().parent.name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
