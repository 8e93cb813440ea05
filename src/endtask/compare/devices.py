"""Runs spread over several GPUs: a queue, from which the first free GPU takes the next run that it may do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from endtask.config import Budget
from endtask.errors import InputError
from endtask.progress import warn

LOG = "log.txt"
BROKEN_TRAINING = 3
"""Exit code of a run whose training cannot go on; the same run would end so again."""

_PAUSE = 0.2


class Process(Protocol):
    """A run at work."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...

    def wait(self) -> int: ...


@dataclass(frozen=True)
class Job:
    """A run to be done in its folder up to a stage; `stages` are the fingerprints of what it trains on the way."""

    key: str
    folder: Path
    until: str
    stages: frozenset[str]


Start = Callable[[Job, str], Process]


def work_through(
    jobs: Sequence[Job],
    devices: Sequence[str],
    *,
    start: Start,
    before: Callable[[Job, str], None],
    after: Callable[[Job, int], None],
    done: frozenset[str] = frozenset(),
    callback: float = _PAUSE,
) -> None:
    """Do all jobs, one at a time on each device; `before` is told of each start, `after` of each exit code.

    A device that is named twice takes two jobs at a time: small models leave much of a GPU idle.
    A job waits while another one trains a stage that both need and that is not among `done`: it is done once. Whatever
    stops this process stops the others.
    """
    waiting = list(jobs)
    busy: dict[int, tuple[Job, Process]] = {}  # by place in `devices`
    try:
        while waiting or busy:
            for place, device in enumerate(devices):
                running = [other for other, _ in busy.values()]
                job = _next(waiting, running, done) if place not in busy else None
                if job is not None:
                    waiting.remove(job)
                    before(job, device)
                    busy[place] = (job, start(job, device))
            for place, (job, process) in list(busy.items()):
                code = process.poll()
                if code is not None:
                    del busy[place]
                    done = done | job.stages if code == 0 else done
                    after(job, code)
            time.sleep(callback)
    finally:
        for _, process in busy.values():
            process.terminate()
        for _, process in busy.values():
            process.wait()


def last_line(folder: Path) -> str:
    """What a run said last."""
    path = folder / LOG
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing").removeprefix("endtask: ")


def check_devices(devices: Sequence[str], device: str) -> None:
    """Refuse GPUs that are not there, on which training would silently fall back to the CPU."""
    odd = next((name for name in devices if not name.isdecimal()), None)
    if odd is not None:
        raise InputError(f"--devices: {odd!r} is not the number of a GPU", hint="--devices 0,1")
    if not devices or device == "cpu":
        return
    import torch

    there = torch.cuda.device_count()
    missing = next((name for name in devices if int(name) >= there), None)
    if missing is not None:
        hint = f"there are {there}, counted from 0" if there else "PyTorch sees none"
        raise InputError(f"--devices: there is no GPU {missing}", hint=hint)


def warn_of_shared_devices(devices: Sequence[str], budgets: Iterable[Budget]) -> None:
    """Say where runs would take seconds from each other."""
    twice = next((name for name in devices if devices.count(name) > 1), None)
    timed = next((budget for budget in budgets if budget.seconds is not None), None)
    if twice is not None and timed is not None:
        warn(
            f"--devices: runs share GPU {twice}, so the budget of {timed} is fewer steps than for a run "
            "alone; give budgets in steps or tokens"
        )


def _next(waiting: Sequence[Job], running: Sequence[Job], done: frozenset[str]) -> Job | None:
    """The first job that has nothing to wait for."""
    being_done = frozenset(stage for job in running for stage in job.stages) - done
    return next((job for job in waiting if not job.stages & being_done), None)
