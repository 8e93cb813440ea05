"""The trials of several comparisons on shared devices: a task is prepared while those of the task before train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from endtask.errors import InputError
from endtask.experiments.comparison import ComparisonResult
from endtask.experiments.scheduler import Job, JobEnd, StartWorker, run_jobs
from endtask.experiments.task_comparison import Comparison
from endtask.progress import say
from endtask.terminal import print_message


class SharedDevices:
    """Trains the trials of several comparisons on shared devices; a comparison is tested when its last trial ends."""

    def __init__(self, comparisons: Mapping[str, Comparison]) -> None:
        self._comparisons = comparisons
        self._names: dict[Path, str] = {}
        """The task of each job that has not ended, by its log."""
        self._results: dict[str, ComparisonResult] = {}
        self._errors: list[InputError] = []

    def train(self, devices: Sequence[str], start_worker: StartWorker) -> dict[str, ComparisonResult]:
        """Train all trials, and return the results of each task; an error of a task is raised after the others."""
        run_jobs(
            [], devices, before=self._before, after=self._after, start_worker=start_worker, more=self._jobs_by_task()
        )
        if self._errors:
            raise self._errors[0]
        return {name: self._results[name] for name in self._comparisons}

    def _jobs_by_task(self) -> Iterator[list[Job]]:
        """Prepare one task after the other and yield its jobs."""
        for name, comparison in self._comparisons.items():
            if name:
                say(f"task {name}")
            jobs: list[Job] = []
            with self._errors_at_the_end():
                jobs = [comparison.job(trial) for trial in comparison.prepared(on_devices=True)]
                if not jobs:
                    self._results[name] = comparison.finished()
            self._names |= {job.log: name for job in jobs}
            yield jobs

    @contextmanager
    def _errors_at_the_end(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            if len(self._comparisons) > 1:  # else it is raised at once
                print_message(f"endtask: {error}")
            self._errors.append(error)

    def _before(self, job: Job, device: str) -> None:
        name = self._names[job.log]
        comparison = self._comparisons[name]
        where = f", on {f'GPU {device}' if device.isdecimal() else device}"
        comparison.announce(comparison.trial(job), f"{where}, task {name}" if name else where)
        comparison.before(job)

    def _after(self, job: Job, end: JobEnd) -> None:
        name = self._names[job.log]
        if end.status == "finished":
            say(f"{f'{name}, ' if name else ''}{job.key}: finished")
        self._comparisons[name].after(job, end)
        if end.status != "stopped":  # the name of a stopped job stays, so its comparison is not tested
            del self._names[job.log]
        if name not in self._names.values():
            with self._errors_at_the_end():
                self._results[name] = self._comparisons[name].finished()
