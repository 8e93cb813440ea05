"""The training of a comparison's trials, in this process or on devices; results are stored after every trial."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path

from endtask.errors import InputError, TrainingError
from endtask.experiments.compare_report import write_comparison_page
from endtask.experiments.comparison import ComparisonResult, read_results
from endtask.experiments.record import Record
from endtask.experiments.results_file import write_results
from endtask.experiments.scheduler import LOG, Job, JobEnd, StartWorker, run_jobs
from endtask.experiments.spec import Study
from endtask.experiments.trial_runs import TRAINING_STAGES, TrialRuns
from endtask.experiments.trials import Trial
from endtask.io.run_layout import STAGES
from endtask.pipeline.run import run
from endtask.progress import say
from endtask.reporting.format import plural

LAST_STAGE = {"test": "evaluate", "dev": "finetune"}
"""Where runs stop, by the split that they are compared on."""


def is_scored(last: str, study: Study) -> bool:
    """Return whether runs that end with this stage have a score."""
    return STAGES.index(last) >= STAGES.index(LAST_STAGE[study.by])


def _by_seed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first seed of every variant, then the second: a stopped comparison has all variants equally often."""
    variants = [list(found) for _, found in groupby(trials, key=lambda trial: trial.variant.name)]
    return [trial for one_of_each in zip_longest(*variants) for trial in one_of_each if trial is not None]


def train_trial(folder: Path, until: str) -> None:
    """Do what is left of a trial's run; called in a worker."""
    run(folder, until=until)


class TrainTrials:
    """The training of all trials that are not finished and have not failed."""

    def __init__(self, runs: TrialRuns, record: Record, study: Study, last: str, results: Path | None) -> None:
        self._runs, self._record, self._study, self._last = runs, record, study, last
        self._results = results
        self._trials = {trial.key: trial for trial in _by_seed(runs.trials)}
        self._stopped: dict[str, str] = {}

    def run(self, devices: Sequence[str], start_worker: StartWorker) -> Record:
        """Train in this process, or on the devices; return the record with the failures."""
        left = [trial for trial in self._trials.values() if trial.key not in self._record.trials]
        left = [trial for trial in left if not self._runs.is_finished(trial, self._last)]
        if left and is_scored(self._last, self._study):
            self._store_earlier()
        if devices:
            self._run_on_devices(left, devices, start_worker)
        else:
            for trial in left:
                self._run_here(trial)
        return self._record

    def _run_here(self, trial: Trial) -> None:
        self._announce(trial, "")
        try:
            self._runs.train(trial, self._last)
        except TrainingError as error:  # a result for this variant, not the end of the others
            self._record = self._record.with_trial(trial.key, {"failure": str(error)})
        self._store()

    def _run_on_devices(self, trials: Sequence[Trial], devices: Sequence[str], start_worker: StartWorker) -> None:
        stages = {
            key: [self._runs.stages(trial)[name] for name in TRAINING_STAGES] for key, trial in self._trials.items()
        }
        done = frozenset(stage.fingerprint for found in stages.values() for stage in found if stage.is_finished())
        jobs = [
            Job(
                trial.key,
                train_trial,
                (trial.folder, self._last),
                trial.folder / LOG,
                frozenset(stage.fingerprint for stage in stages[trial.key]),
            )
            for trial in trials
        ]
        run_jobs(jobs, devices, before=self._before, after=self._after, done=done, start_worker=start_worker)
        if self._stopped:
            key, message = next(iter(self._stopped.items()))
            hint = f"{plural(len(self._stopped), 'run')} stopped; the same command tries again"
            raise InputError(message, path=self._trials[key].folder, hint=hint)

    def _before(self, job: Job, device: str) -> None:
        self._announce(self._trials[job.key], f", on GPU {device}")
        self._runs.reuse(self._trials[job.key])

    def _after(self, job: Job, end: JobEnd) -> None:
        if end.status == "finished":
            say(f"{job.key}: finished")
        elif end.status == "failed":
            self._record = self._record.with_trial(job.key, {"failure": end.message})
        else:  # trouble that says nothing about the settings, such as a full disk
            self._stopped[job.key] = end.message
        self._store()

    def _announce(self, trial: Trial, where: str) -> None:
        number = list(self._trials).index(trial.key) + 1
        say(f"run {number} of {len(self._trials)}: variant {trial.variant.name}, pre-training seed {trial.seed}{where}")

    def _store(self) -> None:
        """Write the page and the results so far, without tests, which take a while.

        Untrained baselines take a while too, so the trial that ended is written before they are computed.
        """
        if not is_scored(self._last, self._study):
            return
        result = self._results_so_far()
        if not set(result.missing).isdisjoint(self._runs.plan.untrained):
            self._write(result)
            result = self._results_so_far(compute=True)
        self._write(result)

    def _store_earlier(self) -> None:
        """Write what an earlier call finished, in case this one is stopped before its first trial ends."""
        result = self._results_so_far()
        if result.has_trained_trials and result.missing and self._results is not None:
            write_results(result, self._results)

    def _results_so_far(self, *, compute: bool = False) -> ComparisonResult:
        return read_results(self._runs, self._record, self._study.by, tested=False, compute=compute)

    def _write(self, result: ComparisonResult) -> None:
        write_comparison_page(result)
        if self._results is not None:
            write_results(result, self._results)
