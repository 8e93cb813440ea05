"""Workers of the scheduler on a Ray cluster: an actor for each GPU of the cluster, or for each machine without GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.executors.choice import executor_of
from endtask.experiments.scheduler import JobEnd, StartWorker

CLUSTER = "cluster"
"""The value of --devices for the Ray cluster of `cluster.address`."""


def on_cluster(devices: Sequence[str], settings: Settings, folder: Path) -> tuple[Sequence[str], StartWorker]:
    """Return the names of the cluster's slots, and what starts a worker in one; all must see the folder."""
    if list(devices) != [CLUSTER]:
        raise InputError(f"--devices: {CLUSTER} stands for all GPUs of the cluster", hint=f"--devices {CLUSTER}")
    if settings.cluster.address is None:
        raise InputError(
            f"--devices {CLUSTER} needs a cluster", key="cluster.address", hint="--set cluster.address=auto"
        )
    from endtask.executors.ray_cluster import RayExecutor

    executor = executor_of(settings)
    assert isinstance(executor, RayExecutor)
    folder.mkdir(parents=True, exist_ok=True)
    executor.check_folder(folder)
    gpus = executor.gpus
    kind, count = ("GPU", gpus) if gpus else ("machine", executor.machines)
    names = [f"{kind} {number} of the cluster" for number in range(1, count + 1)]
    return names, lambda device, threads: RayWorker(executor.cores_each, with_gpu=gpus > 0)


class TrialActor:
    """A process of the cluster that runs calls one after the other."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # relative paths are those of the process that starts the comparison
            os.chdir(folder)

    def call(self, function: Callable[..., JobEnd], *arguments: Any) -> JobEnd:
        """Call a function."""
        return function(*arguments)


class RayWorker:
    """An actor with a GPU, or with the threads of a machine.

    It holds no CPUs for Ray, so that a trial's own retrieval can use them while it waits.
    """

    def __init__(self, threads: int, *, with_gpu: bool) -> None:
        import ray

        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": int(with_gpu), "scheduling_strategy": "SPREAD"}
        options["runtime_env"] = {"env_vars": {"OMP_NUM_THREADS": str(threads)}}
        self._ray: Any = ray
        self._actor = self._ray.remote(**options)(TrialActor).remote(os.getcwd())

    def submit(self, function: Callable[..., JobEnd], *arguments: Any) -> Future[JobEnd]:
        """Start a call in the actor."""
        future: Future[JobEnd] = self._actor.call.remote(function, *arguments).future()
        return future

    def stop(self) -> None:
        """Kill the actor, even in the middle of a call."""
        self._ray.kill(self._actor)
