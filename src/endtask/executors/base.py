"""What all executors share: jobs as plain data, the modules that handle them, and errors as plain data."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from endtask.errors import InputError

Job = dict[str, Any]
"""Plain values for JSON. Results are files, and callers leave out the jobs whose files exist."""
Report = Callable[..., None]
"""Reports progress to the starting process, as keywords."""
Handler = Callable[[Job, Report], None]
Answer = dict[str, Any]


class Executor(ABC):
    """Runs jobs, each with the `handle(job, report)` of a module; a failed job does not stop the others.

    `workers` is the number of cores, or of cores of all machines. `machines` is how many machines can run a job that
    uses `cores_each` cores at the same time.
    """

    workers: int
    machines: int = 1

    @property
    def cores_each(self) -> int:
        """The cores of the smallest machine."""
        return self.workers

    @abstractmethod
    def run(
        self,
        module: str,
        jobs: Sequence[Job],
        report: Report,
        *,
        cores: int = 1,
        small: bool = False,
        model: bool = False,
    ) -> None:
        """Run all jobs, and raise the error of the first job that failed.

        A job uses `cores` cores. `small` jobs take less time than starting a process. With `model` a process handles
        many jobs one after the other, on a GPU if there is one, so that it loads the model once.
        """

    def check_folder(self, folder: Path) -> None:
        """Raise `InputError` if a machine cannot read what this one writes to the folder."""
        return

    def processes_for_each(self, jobs: int) -> int:
        """Return how many processes each job may use of its own, so that all jobs together use all cores."""
        return min(self.cores_each, max(1, self.workers // max(1, jobs)))


def handler_of(module: str) -> Handler:
    """Return the function `handle` of a module."""
    handler: Handler = importlib.import_module(module).handle
    return handler


def answer_of(handler: Handler, job: Job, report: Report) -> Answer:
    """Run a job; return `done`, or its error as plain data for another process."""
    try:
        handler(job, report)
    except InputError as error:
        return {"input_error": str(error)}
    except OSError as error:
        filename = None if error.filename is None else str(error.filename)
        # NumPy raises it with a message alone.
        return {"os_error": [str(error)] if error.errno is None else [error.errno, error.strerror, filename]}
    return {"done": True}


def answer_with_sums(module: str, job: Job) -> tuple[Answer, dict[str, Any]]:
    """Run a job by the handler of a module; return its answer and the sums of its reports."""
    sums: dict[str, Any] = {}

    def report(**amounts: Any) -> None:
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount

    return answer_of(handler_of(module), job, report), sums


def check_answer(answer: Answer) -> bool:
    """Return whether the job is done; raise the error that `answer_of` made plain."""
    if "input_error" in answer:
        raise InputError(answer["input_error"])
    if "os_error" in answer:
        raise OSError(*answer["os_error"])
    return bool(answer.get("done"))


class Failures:
    """The errors of jobs by their numbers."""

    def __init__(self) -> None:
        self._errors: dict[int, Exception] = {}

    def add(self, number: int, error: Exception) -> None:
        """Store the error of a job."""
        self._errors[number] = error

    def raise_first(self) -> None:
        """Raise the error of the first job that failed, if any."""
        if self._errors:
            raise self._errors[min(self._errors)]


def import_path() -> str:
    """Return the path on which a new interpreter finds this package, however this process imported it."""
    package_parent = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
