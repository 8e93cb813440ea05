"""A handler that kills its process, or its machine, in the middle of one job, and leaves the others to their handlers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from endtask.executors.base import handler_of


def handle(job: dict[str, Any], report: Any) -> None:
    """Run `job["job"]`; the first process on the right machine dies at its first report, and later ones live."""
    handler = handler_of(job["module"])
    if not _is_first(job):
        handler(job["job"], report)
        return
    handler(job["job"], lambda **_: _die(job))
    _die(job)  # a handler without reports


def _is_first(job: dict[str, Any]) -> bool:
    if job["node"] is not None:
        import ray

        if ray.get_runtime_context().get_node_id() != job["node"]:
            _wait_for(Path(job["marker"]))
            return False
    try:
        Path(job["marker"]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _wait_for(marker: Path) -> None:
    """Leave jobs to the other machine until it has died, which a fast machine would else do alone."""
    end = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < end:
        time.sleep(0.05)


def _die(job: dict[str, Any]) -> None:
    if job["node"] is not None:
        os.kill(os.getppid(), signal.SIGKILL)  # the machine's manager of processes
    os.kill(os.getpid(), signal.SIGKILL)


def write_or_die(path: str, marker: str) -> None:
    """Write a file; the first process of all dies before."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        Path(path).write_text(str(os.getpid()), encoding="utf-8")
        return
    os.kill(os.getpid(), signal.SIGKILL)
