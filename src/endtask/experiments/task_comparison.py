"""A comparison in its folder: checks, record, preparation, training of its trials, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError, TrainingError, did_you_mean
from endtask.experiments.compare_report import write_comparison_page
from endtask.experiments.comparison import ComparisonResult, read_results, write_results
from endtask.experiments.record import Record, check_spec, read_record
from endtask.experiments.scheduler import LOG, Job, JobEnd
from endtask.experiments.spec import Presets, Study, check_study
from endtask.experiments.trial_runs import LAST_PREPARED, TRAINING_STAGES, Plan, TrialRuns, make_plan
from endtask.experiments.variants import VARIANTS, Trial, check_no_storage
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import SHARED_TOKENIZER, STAGES, record_file
from endtask.io.stage_files import MANIFEST
from endtask.pipeline.run import Run, run
from endtask.progress import say

RECORD = record_file("compare")
LAST_STAGE = {"test": "evaluate", "dev": "finetune"}
"""Where runs stop, by the split that they are compared on."""
_FINETUNE_SEEDS = "finetune.seeds"

Tree = dict[str, Any]


class Comparison:
    """The comparison in the folder `settings.output_dir`; arguments are those of `compare`.

    Its methods are called in the block of `opened`.
    """

    def __init__(
        self,
        settings: Settings,
        study: Study | Mapping[str, Any],
        *,
        presets: Presets | None = None,
        until: str | None = None,
        sources: Sequence[Path] = (),
        where: str = "study",
        results: Path | None = None,
    ) -> None:
        self._study = study if isinstance(study, Study) else check_study(study, where)
        check_no_storage(settings, *(presets or {}).values())
        self.folder = Run(settings).folder
        settings, presets = _with_shared_tokenizer(settings, self._study, presets or {}, self.folder, where)
        self.plan = make_plan(settings, self._study, where, presets)
        self._last = _last_stage(until, self._study)
        self._results = results
        self._runs = TrialRuns(self.plan, self.folder, sources)
        self._trials = {trial.key: trial for trial in _by_seed(self._runs.trials)}
        self._runs.check(self._last)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the lock of the folder for the block."""
        make_output_folder(self.folder, RECORD)
        with run_lock(self.folder):
            record = open_record(self.folder, self.plan)
            self._runs.check_unchanged()
            self._record = record.save()
            yield

    def prepared(self, *, on_devices: bool) -> list[Trial]:
        """Run the stages before training, and return the trials to train: not finished, and not failed earlier."""
        trains = STAGES.index(self._last) > STAGES.index(LAST_PREPARED)
        self._runs.prepare(self._last, on_devices=trains and on_devices)
        if not trains:
            return []
        pending = [trial for trial in self._trials.values() if trial.key not in self._record.trials]
        pending = [trial for trial in pending if not self._runs.is_finished(trial, self._last)]
        self._runs.write_missing_reports(self._last)
        if pending and is_scored(self._last, self._study):
            self._store_earlier()
        return pending

    def train(self, trial: Trial) -> None:
        """Train a trial in this process."""
        self.announce(trial)
        try:
            self._runs.train(trial, self._last)
        except TrainingError as error:  # the result of this trial; the others continue
            self._record = self._record.with_trial(trial.key, {"failure": str(error)})
        self._store()

    def job(self, trial: Trial) -> Job:
        """Return the job that trains a trial on a device."""
        stages = [self._runs.stages(trial)[name] for name in TRAINING_STAGES]
        return Job(
            trial.key,
            train_trial,
            (trial.folder, self._last),
            trial.folder / LOG,
            frozenset(stage.fingerprint for stage in stages if not stage.is_finished()),
        )

    def before(self, job: Job) -> None:
        """Reuse the stages of other trials before a job starts."""
        self._runs.reuse(self._trials[job.key])

    def after(self, job: Job, end: JobEnd) -> None:
        """Record how a job ended."""
        if end.status == "failed":
            self._record = self._record.with_trial(job.key, {"failure": end.message})
        self._store()

    def announce(self, trial: Trial, suffix: str = "") -> None:
        """Say which trial starts."""
        number, name = list(self._trials).index(trial.key) + 1, trial.variant.name
        say(f"run {number} of {len(self._trials)}: variant {name}, pre-training seed {trial.seed}{suffix}")

    def trial(self, job: Job) -> Trial:
        """Return the trial of a job."""
        return self._trials[job.key]

    def finished(self) -> ComparisonResult:
        """Test the finished trials, write the page and the results, and return them."""
        scored = is_scored(self._last, self._study)
        result = read_results(self._runs, self._record, self._study.by, tested=scored, compute=scored)
        if scored:
            self._record.with_outcome(result.to_dict())
            write_outcome(result, self._results)
        elif self._results is not None:
            write_results(result, self._results)
        if scored and not result.has_trained_trials:
            raise InputError(f"no run trained to its end; the first: {result.failures[0]}", path=self.folder)
        return result

    def _store(self) -> None:
        """Write the page and the results so far, without tests, which are slow.

        Untrained baselines are slow too, so the trial that ended is written before they are computed.
        """
        if not is_scored(self._last, self._study):
            return
        result = self._results_so_far()
        if not set(result.missing).isdisjoint(self._runs.plan.untrained):
            write_outcome(result, self._results)
            result = self._results_so_far(compute=True)
        write_outcome(result, self._results)

    def _store_earlier(self) -> None:
        """Write the results of earlier calls, in case this call is stopped before its first trial ends."""
        result = self._results_so_far()
        if result.has_trained_trials and result.missing and self._results is not None:
            write_results(result, self._results)

    def _results_so_far(self, *, compute: bool = False) -> ComparisonResult:
        return read_results(self._runs, self._record, self._study.by, tested=False, compute=compute)


def write_outcome(result: ComparisonResult, results: Path | None) -> None:
    """Write the page and, if there is one, the file of results."""
    write_comparison_page(result)
    if results is not None:
        write_results(result, results)


def _with_shared_tokenizer(
    settings: Settings, study: Study, presets: Presets, folder: Path, where: str
) -> tuple[Settings, Presets]:
    """Return settings and presets with the shared tokenizer, if the study has one; learn it if needed."""
    if study.shared_tokenizer is None:
        return settings, presets
    if settings.tokenizer.path is not None or settings.model.path is not None:
        message = "the settings have a tokenizer already (tokenizer.path or model.path)"
        raise InputError(message, path=where, key="shared_tokenizer")
    values = {**study.shared_tokenizer, "output_dir": str(folder / SHARED_TOKENIZER)}
    tokenizer_run = Run(with_values(settings, values, f"{where}, shared_tokenizer"))
    tokenizer_run.stage_folders()  # raises for missing data before anything is written
    make_output_folder(folder, RECORD)
    with run_lock(folder):
        if not (folder / RECORD).exists():
            Record(folder, "compare", {}).save()  # marks the folder as a comparison's
        tokenizer_run.execute(until=LAST_PREPARED)
    path = {"tokenizer.path": str(folder / SHARED_TOKENIZER / LAST_PREPARED / "tokenizer")}
    with_tokenizer = {name: with_values(preset, path, where) for name, preset in presets.items()}
    return with_values(settings, path, where), with_tokenizer


def _last_stage(until: str | None, study: Study) -> str:
    last = LAST_STAGE[study.by]
    if until is None:
        return last
    if until not in STAGES:
        raise InputError(f"unknown stage {until!r}", hint=did_you_mean(until, STAGES))
    if study.by == "dev" and STAGES.index(until) > STAGES.index(last):
        raise InputError(f"by dev no run goes further than {last}; the stage {until} reads test")
    return until


def open_record(folder: Path, plan: Plan) -> Record:
    """Return the record in the folder with the new spec. Raise `InputError` if its runs were made with another spec.

    Variants and seeds may be added and left out; a variant with finished stages must not change. Nothing is written.
    """
    exclude = {"output_dir"}  # a folder may be moved
    spec: Tree = {
        "settings": plan.settings.model_dump(mode="json", exclude=exclude),
        "presets": {name: preset.model_dump(mode="json", exclude=exclude) for name, preset in plan.presets.items()},
        "study": plan.study.model_dump(mode="json"),
        "variants": {variant.name: variant.difference_from(plan.settings) for variant in plan.variants},
    }
    if not ((folder / RECORD).exists() and (folder / VARIANTS).exists()):
        return Record(folder, "compare", spec)
    record = read_record(folder, "compare")
    before = record.spec
    check_spec(folder, _without_finetune_seeds(before["settings"]), _without_finetune_seeds(spec["settings"]))
    changed = {
        name
        for name, values in spec["variants"].items()
        if name in before["variants"] and not _equal(before["variants"][name], values)
    }
    for name in sorted(changed):
        if any((folder / VARIANTS / name).glob(f"seed-*/*/{MANIFEST}")):
            check_spec(folder, before["variants"][name], spec["variants"][name], f"variant {name!r}: ")
    spec["variants"] = {**before["variants"], **spec["variants"]}
    failures = {key: trial for key, trial in record.trials.items() if key.partition("/")[0] not in changed}
    return Record(folder, "compare", spec, failures, record.outcome)


def _without_finetune_seeds(settings: Tree) -> Tree:
    """Return settings without the fine-tuning seeds, which may change: fine-tuning is then repeated."""
    finetune = {name: value for name, value in settings["finetune"].items() if name != "seeds"}
    return {**settings, "finetune": finetune}


def _equal(old: Tree, new: Tree) -> bool:
    """Return whether two variants have the same values, apart from fine-tuning seeds."""
    return {**old, _FINETUNE_SEEDS: None} == {**new, _FINETUNE_SEEDS: None}


def is_scored(last: str, study: Study) -> bool:
    """Return whether runs that end with this stage have a score."""
    return STAGES.index(last) >= STAGES.index(LAST_STAGE[study.by])


def _by_seed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the first trial of every variant, then the second ones: a stopped comparison has seeds of all variants."""
    variants = [list(group) for _, group in groupby(trials, key=lambda trial: trial.variant.name)]
    return [trial for same_seed in zip_longest(*variants) for trial in same_seed if trial is not None]


def train_trial(folder: Path, until: str) -> None:
    """Run or resume a trial's run; called in a worker."""
    run(folder, until=until)
