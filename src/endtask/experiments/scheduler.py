"""Run jobs on several devices; every device slot has a worker process, which runs its jobs one after the other.

A worker imports libraries, creates the CUDA context and compiles kernels once. Its output goes to the job's log file.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from joblib.externals.loky import ProcessPoolExecutor

from endtask.config import Budget
from endtask.errors import InputError, TrainingError
from endtask.io.machine import initialized_cuda, usable_cores
from endtask.io.processes import exit_with_parent
from endtask.io.signals import ignore_stop_signals
from endtask.progress import warn
from endtask.reporting.format import plural
from endtask.terminal import print_message

LOG = "log.txt"


@dataclass(frozen=True)
class Job:
    """A call `function(*arguments)` in a worker process, which must be able to import both.

    A job waits while a running job produces something that it `produces` too, and then reuses it.
    """

    key: str
    function: Callable[..., None]
    arguments: tuple[Any, ...]
    log: Path
    produces: frozenset[str] = frozenset()


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: finished; failed, as it would again; or stopped by an error that may not occur again."""

    status: Literal["finished", "failed", "stopped"]
    message: str = ""


class Worker(Protocol):
    """A process that runs calls one after the other."""

    def submit(self, function: Callable[..., JobEnd], *arguments: Any) -> Future[JobEnd]: ...

    def stop(self) -> None: ...


StartWorker = Callable[[str, int], Worker]
"""Starts a worker on a device, given the number of threads it may use."""


class DeviceWorker:
    """A process that sees one GPU and exits when this process does."""

    def __init__(self, device: str, threads: int) -> None:
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            initializer=_start_worker,
            initargs=(os.getpid(),),
            env=worker_environment(device, threads, os.environ),
        )

    def submit(self, function: Callable[..., JobEnd], *arguments: Any) -> Future[JobEnd]:
        """Start a call in the process."""
        future: Future[JobEnd] = self._pool.submit(function, *arguments)
        return future

    def stop(self) -> None:
        """Kill the process, even in the middle of a call."""
        self._pool.shutdown(wait=True, kill_workers=True)


def _start_worker(parent: int) -> None:
    """Leave signals to the parent process, which stops its workers."""
    ignore_stop_signals()
    exit_with_parent(parent)


def run_jobs(
    jobs: Sequence[Job],
    devices: Sequence[str],
    *,
    before: Callable[[Job, str], None],
    after: Callable[[Job, JobEnd], None],
    done: frozenset[str] = frozenset(),
    start_worker: StartWorker = DeviceWorker,
    may_fail: bool = True,
    more: Iterable[Sequence[Job]] = (),
) -> None:
    """Run all jobs, one at a time in each device slot; call `before` at each start and `after` at each end.

    A device that is listed twice has two slots: small models leave most of a GPU unused. `done` has earlier products.
    The next of `more` is read as soon as no job waits, so an iterator prepares later jobs while the devices work.
    A worker whose job did not finish is replaced. Workers stop when this function ends for any reason. Raise
    `InputError` at the end if a job stopped, or if a job failed and `may_fail` is false.
    """
    waiting, batches = list(jobs), iter(more)
    threads = max(1, usable_cores() // max(1, len(devices)))
    workers: dict[int, Worker] = {}  # by slot
    running: dict[Future[JobEnd], tuple[int, Job]] = {}
    unfinished: list[tuple[Job, JobEnd]] = []
    try:
        while True:
            busy = {slot for slot, _ in running.values()}
            for slot in (slot for slot in range(len(devices)) if slot not in busy):
                job = _next_job(waiting, [other for _, other in running.values()], done)
                if job is None:
                    break
                waiting.remove(job)
                before(job, devices[slot])
                if slot not in workers:
                    workers[slot] = start_worker(devices[slot], threads)
                running[workers[slot].submit(run_logged, job.log, job.function, job.arguments)] = (slot, job)
            if not waiting and (batch := next(batches, None)) is not None:
                waiting.extend(batch)
                continue
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                slot, job = running.pop(future)
                end = _end_of(future, job)
                if end.status == "finished":
                    done = done | job.produces
                else:
                    workers.pop(slot).stop()
                    if end.status == "stopped" or not may_fail:
                        unfinished.append((job, end))
                after(job, end)
    finally:
        for worker in workers.values():
            worker.stop()
    if unfinished:
        job, end = unfinished[0]
        hint = f"{plural(len(unfinished), 'run')} stopped; the same command tries again"
        raise InputError(end.message, path=job.log.parent, hint=hint)


def _next_job(waiting: Sequence[Job], running: Sequence[Job], done: frozenset[str]) -> Job | None:
    """Return the first job that need not wait for a running job."""
    in_progress = frozenset(product for job in running for product in job.produces) - done
    return next((job for job in waiting if not job.produces & in_progress), None)


def _end_of(future: Future[JobEnd], job: Job) -> JobEnd:
    error = future.exception()
    return future.result() if error is None else JobEnd("stopped", f"the worker process died ({last_line(job.log)})")


def run_logged(log: Path, function: Callable[..., None], arguments: tuple[Any, ...]) -> JobEnd:
    """Call a function in a worker and append its output to a log file. Return how it ended."""
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        return run_job(function, arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _free_gpu_memory()


def run_job(function: Callable[..., None], arguments: tuple[Any, ...]) -> JobEnd:
    """Call a function. Return how it ended."""
    try:
        function(*arguments)
    except InputError as error:
        print_message(f"endtask: {error}")
        return JobEnd("failed" if isinstance(error, TrainingError) else "stopped", str(error))
    except Exception as error:
        traceback.print_exc()
        return JobEnd("stopped", f"{type(error).__name__}: {error}")
    return JobEnd("finished")


def _free_gpu_memory() -> None:
    gc.collect()
    cuda = initialized_cuda()
    if cuda is not None:
        cuda.empty_cache()


def last_line(log: Path) -> str:
    """Return the last line of a log file."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output").removeprefix("endtask: ")


def check_devices(devices: Sequence[str], device: str) -> None:
    """Raise `InputError` for a GPU that does not exist; training would silently use the CPU."""
    invalid = next((name for name in devices if not name.isdecimal()), None)
    if invalid is not None:
        raise InputError(f"--devices: {invalid!r} is not the number of a GPU", hint="--devices 0,1")
    if not devices or device == "cpu":
        return
    import torch

    available = torch.cuda.device_count()
    missing = next((name for name in devices if int(name) >= available), None)
    if missing is not None:
        hint = f"there are {available}, counted from 0" if available else "PyTorch sees none"
        raise InputError(f"--devices: there is no GPU {missing}", hint=hint)


def warn_about_shared_devices(devices: Sequence[str], budgets: Iterable[Budget]) -> None:
    """Warn if runs with a budget in seconds share a GPU, where they take time from each other."""
    shared = next((name for name in devices if devices.count(name) > 1), None)
    timed = next((budget for budget in budgets if budget.seconds is not None), None)
    if shared is not None and timed is not None:
        warn(
            f"--devices: runs share GPU {shared}, so a budget of {timed} means fewer steps than for a run "
            "alone; give budgets in steps or tokens"
        )


def worker_environment(device: str, threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: the GPU that it sees, and its number of threads unless the user set one.

    PyTorch would use all cores in every process; ten processes that compete for all cores are slower than ten
    processes with one core each.

    >>> worker_environment("0", 2, {}), worker_environment("0", 2, {"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"]
    ({'OMP_NUM_THREADS': '2', 'CUDA_VISIBLE_DEVICES': '0'}, '4')
    """
    visible = visible_device(device, environment)
    return {"OMP_NUM_THREADS": str(threads), **environment, "CUDA_VISIBLE_DEVICES": visible}


def visible_device(device: str, environment: Mapping[str, str]) -> str:
    """Return a GPU's name for CUDA; if GPUs are hidden from this process, numbers count the visible GPUs.

    >>> visible_device("1", {}), visible_device("1", {"CUDA_VISIBLE_DEVICES": "4,6"})
    ('1', '6')
    """
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[int(device)] if visible and device.isdecimal() and int(device) < len(visible) else device
