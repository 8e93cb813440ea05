"""Processes that do runs one after the other, so that imports and compiled kernels are paid for once in each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

from endtask.compare.devices import Job, Process
from endtask.io.machine import usable_cores

_CRASHED = 1


class Workers:
    """Starts jobs, each in a process that sees one GPU; a process that has done its job well takes another.

    `at_once` processes share the machine's cores.
    """

    def __init__(self, at_once: int) -> None:
        self._threads = max(1, usable_cores() // at_once)
        self._idle: list[Worker] = []

    def __call__(self, job: Job, device: str) -> Process:
        """Have the job done on a device; many may be at work at the same time."""
        worker = next((one for one in self._idle if one.device == device), None)
        worker = worker or Worker(device, self._idle, self._threads)
        worker.ask(job)
        return worker

    def end(self) -> None:
        """Stop the processes that wait for a job."""
        for worker in self._idle:
            worker.terminate()
            worker.wait()


class Worker:
    """A process that takes jobs on its standard input and answers each with an exit code on its standard output."""

    def __init__(self, device: str, idle: list[Worker], threads: int) -> None:
        self.device, self._idle = device, idle
        command = [sys.executable, "-m", "endtask.compare.worker", str(os.getpid())]
        environment = environment_for(device, threads, os.environ)
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._jobs, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._answers.fileno(), False)

    def ask(self, job: Job) -> None:
        """Send a job; that a process died while it waited shows when it is asked for an answer."""
        if self in self._idle:
            self._idle.remove(self)
        with suppress(BrokenPipeError):
            self._jobs.write(json.dumps([str(job.folder), job.until]).encode() + b"\n")
            self._jobs.flush()

    def poll(self) -> int | None:
        """The job's exit code, None while it is at work; a process whose run failed is not used again."""
        ended = self._process.poll()  # asked before the answer, which may come in between
        answer = self._answers.read()  # a few bytes, written at once
        if not answer:
            return ended if ended is None else ended or _CRASHED
        code = int(answer)
        if code == 0:
            self._idle.append(self)
        else:
            self.terminate()
            self.wait()
        return code

    def terminate(self) -> None:
        """Stop it, whatever it does."""
        self._process.terminate()

    def wait(self) -> int:
        """Until it is gone; returns its own exit code."""
        code = self._process.wait()
        self._answers.close()
        with suppress(BrokenPipeError):  # a job may lie in the buffer
            self._jobs.close()
        return code


def environment_for(device: str, threads: int, environment: Mapping[str, str]) -> dict[str, str]:
    """A process's variables: the one GPU that it sees, and its threads, where the user has not said how many.

    PyTorch takes all cores else, and ten processes that each wait for all cores are slower than ten with one each.

    >>> environment_for("0", 2, {}), environment_for("0", 2, {"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"]
    ({'OMP_NUM_THREADS': '2', 'CUDA_VISIBLE_DEVICES': '0'}, '4')
    """
    visible = visible_device(device, environment)
    return {"OMP_NUM_THREADS": str(threads), **environment, "CUDA_VISIBLE_DEVICES": visible}


def visible_device(device: str, environment: Mapping[str, str]) -> str:
    """A GPU's name for CUDA; where some are hidden from us already, numbers count those that are left.

    >>> visible_device("1", {}), visible_device("1", {"CUDA_VISIBLE_DEVICES": "4,6"})
    ('1', '6')
    """
    visible = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[int(device)] if visible and device.isdecimal() and int(device) < len(visible) else device
