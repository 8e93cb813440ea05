"""A comparison from its plan to its table; the same call goes on after a stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from endtask.compare.cell import CellRun
from endtask.compare.comparison import Comparison, check_comparison
from endtask.compare.devices import (
    BROKEN_TRAINING,
    Job,
    Start,
    check_devices,
    last_line,
    warn_of_shared_devices,
    work_through,
)
from endtask.compare.gather import gather
from endtask.compare.outcome import Outcome
from endtask.compare.page import write_page
from endtask.compare.plan import make_plan
from endtask.compare.record import COMPARE_FILE, Record, open_record
from endtask.compare.results import write_results
from endtask.compare.scored import TRAINING
from endtask.compare.work import LAST_PREPARED, Work
from endtask.compare.workers import Workers
from endtask.config import Settings
from endtask.errors import InputError, TrainingError, did_you_mean
from endtask.io.lock import make_own_folder, run_lock
from endtask.io.run_layout import STAGES
from endtask.pipeline.run import Run
from endtask.progress import say
from endtask.reporting.format import plural

LAST_STAGE = {"test": "evaluate", "dev": "finetune"}


def compare(
    settings: Settings,
    comparison: Comparison | Mapping[str, Any],
    *,
    until: str | None = None,
    devices: Sequence[str] = (),
    lenders: Sequence[Path] = (),
    where: str = "comparison",
    results: Path | None = None,
    start: Start | None = None,
) -> Outcome:
    """Do what is left of a comparison in the folder `settings.output_dir` and return its table.

    Every cell and pre-training seed is a run of its own in `cells/NAME/seed-N`. `until` stops all of them after a
    stage. `devices` are numbers of GPUs that runs are spread over, as many at a time on each as it is named; without
    them runs are done one after the other in this process. `lenders` are folders of other runs whose finished stages
    may be taken over. `where` names the origin of the comparison in messages. `results` is a file that is written again
    after every run, so that a comparison which is stopped loses nothing that is finished.
    """
    if not isinstance(comparison, Comparison):
        comparison = check_comparison(comparison, where)
    folder = Run(settings).folder
    plan = make_plan(settings, comparison, where)
    last = _last_stage(until, comparison)
    check_devices(devices, settings.device)
    warn_of_shared_devices(devices, (cell.settings.budget for cell in plan.cells))
    work = Work(plan, folder, lenders)
    work.check(last)
    make_own_folder(folder, COMPARE_FILE)
    with run_lock(folder):
        record = open_record(folder, plan)
        work.refuse_changed()
        record.save()
        work.prepare(last)
        if STAGES.index(last) > STAGES.index(LAST_PREPARED):
            record = _Training(work, record, comparison, last, results).go(devices, start)
        return _end(work, record, comparison, last, results)


def _last_stage(until: str | None, comparison: Comparison) -> str:
    last = LAST_STAGE[comparison.by]
    if until is None:
        return last
    if until not in STAGES:
        raise InputError(f"unknown stage {until!r}", hint=did_you_mean(until, STAGES))
    if comparison.by == "dev" and STAGES.index(until) > STAGES.index(last):
        raise InputError(f"by dev no run goes further than {last}; the stage {until} looks at test")
    return until


def _has_scores(last: str, comparison: Comparison) -> bool:
    """Whether runs that end with this stage can be judged."""
    return STAGES.index(last) >= STAGES.index(LAST_STAGE[comparison.by])


def _end(work: Work, record: Record, comparison: Comparison, last: str, results: Path | None) -> Outcome:
    scored = _has_scores(last, comparison)
    outcome = gather(work, record, comparison, tested=scored, work_out=scored)
    if scored:
        record.with_outcome(outcome.statistics())
        write_page(outcome)
    if results is not None:
        write_results(outcome, results)
    if scored and not outcome.has_trained_runs:
        first = next(failure for row in outcome.rows for failure in row.failures)
        raise InputError(f"no run trained to its end; the first: {first}", path=record.folder)
    return outcome


def _in_rounds(runs: Sequence[CellRun]) -> list[CellRun]:
    """The first seed of every cell, then the second: stopped half-way, all cells have been trained as often."""
    cells = [list(found) for _, found in groupby(runs, key=lambda run: run.cell.name)]
    return [run for one_of_each in zip_longest(*cells) for run in one_of_each if run is not None]


class _Training:
    """The training of all runs that are not finished and have not failed for good."""

    def __init__(
        self, work: Work, record: Record, comparison: Comparison, last: str, results: Path | None = None
    ) -> None:
        self._work, self._record, self._comparison, self._last = work, record, comparison, last
        self._results = results
        self._runs = {run.key: run for run in _in_rounds(work.runs)}
        self._stopped: dict[str, str] = {}

    def go(self, devices: Sequence[str], start: Start | None) -> Record:
        """Train here, or on the devices; returns the record with what failed."""
        left = [run for run in self._runs.values() if run.key not in self._record.failures]
        left = [run for run in left if not self._work.is_finished(run, self._last)]
        if left and _has_scores(self._last, self._comparison):
            self._keep_earlier()
        if devices:
            self._on_devices(left, devices, start)
        else:
            for run in left:
                self._here(run)
        return self._record

    def _here(self, run: CellRun) -> None:
        self._say(run, "")
        try:
            self._work.train(run, self._last)
        except TrainingError as error:  # the answer for this cell, not the end of the others
            self._record = self._record.with_failure(run.key, str(error))
        self._show()

    def _on_devices(self, runs: Sequence[CellRun], devices: Sequence[str], start: Start | None) -> None:
        stages = {key: [self._work.stages(run)[name] for name in TRAINING] for key, run in self._runs.items()}
        done = frozenset(stage.fingerprint for found in stages.values() for stage in found if stage.is_finished())
        jobs = [
            Job(run.key, run.folder, self._last, frozenset(stage.fingerprint for stage in stages[run.key]))
            for run in runs
        ]
        workers = Workers(at_once=len(devices))
        try:
            work_through(jobs, devices, start=start or workers, before=self._before, after=self._after, done=done)
        finally:
            workers.end()
        if self._stopped:
            key, line = next(iter(self._stopped.items()))
            hint = f"{plural(len(self._stopped), 'run')} stopped; the same command tries again"
            raise InputError(line, path=self._runs[key].folder, hint=hint)

    def _before(self, job: Job, device: str) -> None:
        self._say(self._runs[job.key], f", on GPU {device}")
        self._work.give(self._runs[job.key])

    def _after(self, job: Job, code: int) -> None:
        if code == 0:
            say(f"{job.key}: finished")
        elif code == BROKEN_TRAINING:
            self._record = self._record.with_failure(job.key, last_line(job.folder))
        else:  # trouble that says nothing about the settings, such as a full disk
            self._stopped[job.key] = last_line(job.folder)
        self._show()

    def _say(self, run: CellRun, where: str) -> None:
        place = list(self._runs).index(run.key) + 1
        say(f"run {place} of {len(self._runs)}: cell {run.cell.name}, pre-training seed {run.seed}{where}")

    def _show(self) -> None:
        """The page and the results as they stand; only the last ones have tests, which take a while.

        Baselines that are still to be worked out take a while too, so the run that ended is written down before them.
        """
        if not _has_scores(self._last, self._comparison):
            return
        outcome = self._standing()
        if not set(outcome.missing).isdisjoint(self._work.plan.untrained):
            self._write(outcome)
            outcome = self._standing(work_out=True)
        self._write(outcome)

    def _keep_earlier(self) -> None:
        """Write down what an earlier call finished, should this one be stopped before its first run ends."""
        outcome = self._standing()
        if outcome.has_trained_runs and outcome.missing:
            self._keep(outcome)

    def _standing(self, *, work_out: bool = False) -> Outcome:
        return gather(self._work, self._record, self._comparison, tested=False, work_out=work_out)

    def _write(self, outcome: Outcome) -> None:
        write_page(outcome)
        self._keep(outcome)

    def _keep(self, outcome: Outcome) -> None:
        if self._results is not None:
            write_results(outcome, self._results)
