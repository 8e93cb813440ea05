"""Jobs of a model in the processes that torchrun started: the first one calls the others, which wait for its stages.

All results are files in the run's folder, which the processes share, so that they are those of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from endtask.errors import InputError
from endtask.executors.base import Answer, Executor, Failures, Job, Report, answer_with_sums, check_answer
from endtask.io.machine import usable_cores
from endtask.processes import current_processes

MODULE, JOBS = "module", "jobs"
"""Keys of a call to the other processes."""


class ProcessGroupExecutor(Executor):
    """Divides jobs among the processes; only the first one may call `run`."""

    def __init__(self) -> None:
        self.machines = current_processes().count
        self.workers = usable_cores()

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
        """Run every n-th job in each of the n processes, and raise the error of the first job that failed."""
        current_processes().shared({MODULE: module, JOBS: list(jobs)})
        failures = Failures()
        for number, answer in enumerate(_answers(module, jobs, report)):
            try:
                check_answer(answer)
            except (InputError, OSError) as error:
                failures.add(number, error)
        failures.raise_first()


def take_part(call: dict[str, Any]) -> None:
    """Run this process's part of the jobs that the first process called for."""
    _answers(call[MODULE], call[JOBS], lambda **amounts: None)


def _answers(module: str, jobs: Sequence[Job], report: Report) -> list[Answer]:
    """Return the answers of all jobs, in every process; after each round the progress of all is reported."""
    processes, answers = current_processes(), []
    for start in range(0, len(jobs), processes.count):
        together = jobs[start : start + processes.count]
        own = [answer_with_sums(module, job) for job in together[processes.rank : processes.rank + 1]]
        for found in processes.gathered(own)[: len(together)]:
            answer, sums = found[0]
            if sums:
                report(**sums)
            answers.append(answer)
    return answers
