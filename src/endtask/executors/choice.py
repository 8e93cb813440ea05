"""The executor that the settings name."""

from __future__ import annotations

from pathlib import Path

from endtask.config import Settings
from endtask.errors import InputError
from endtask.executors.base import Executor
from endtask.executors.process_group import ProcessGroupExecutor
from endtask.executors.processes import LocalExecutor
from endtask.io.digests import fingerprint
from endtask.io.machine import usable_cores
from endtask.processes import current_processes
from endtask.progress import say


def executor_of(settings: Settings) -> Executor:
    """Return the executor of the cluster at `cluster.address`, or of this machine."""
    if settings.cluster.address is None:
        return LocalExecutor(settings.threads or usable_cores())
    from endtask.executors.ray_cluster import RayExecutor

    return RayExecutor(settings.cluster.address)


def model_executor(settings: Settings, folder: Path) -> Executor | None:
    """Return what runs jobs of a model: the cluster, the processes of torchrun, or None for this process alone."""
    if settings.cluster.address is None and current_processes().count > 1:
        return ProcessGroupExecutor()
    return cluster_for(settings, folder)


def cluster_for(settings: Settings, folder: Path) -> Executor | None:
    """Return the executor of the cluster for jobs that read and write a folder of the run; None: this machine alone.

    With `cluster.scratch` the run's folder need not be shared; then these jobs run on this machine.
    """
    if settings.cluster.address is None:
        return None
    executor = executor_of(settings)
    try:
        executor.check_folder(folder)
    except InputError:
        if settings.cluster.scratch is None:
            raise
        say("the machines of the cluster do not share the run's folder: this step runs on this machine alone")
        return None
    return executor


def scratch_folder(settings: Settings, default: Path) -> Path:
    """Return the folder of files between the passes: the given one, or one for this run in `cluster.scratch`."""
    folder = default
    if settings.cluster.scratch is not None:
        digest = fingerprint(str(default.absolute()))[:8]  # two runs must not delete each other's files
        folder = Path(settings.cluster.scratch) / f"{default.absolute().parent.name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
