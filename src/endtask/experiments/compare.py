"""Compare settings: variants x pre-training seeds x fine-tuning seeds, baselines, tests, intervals and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from endtask.config import Settings, resolve
from endtask.config.overrides import with_values
from endtask.errors import InputError, TrainingError, did_you_mean
from endtask.experiments.compare_report import write_comparison_page
from endtask.experiments.comparison import ComparisonResult, read_results, write_results
from endtask.experiments.ray_workers import CLUSTER, on_cluster
from endtask.experiments.record import Record, check_spec, read_record
from endtask.experiments.scheduler import (
    LOG,
    DeviceWorker,
    Job,
    JobEnd,
    StartWorker,
    check_devices,
    run_jobs,
    warn_about_shared_devices,
)
from endtask.experiments.spec import Presets, Study, check_study
from endtask.experiments.trial_runs import LAST_PREPARED, TRAINING_STAGES, Plan, TrialRuns, make_plan
from endtask.experiments.variants import VARIANTS, Trial, check_no_storage
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import SHARED_TOKENIZER, STAGES, record_file
from endtask.io.stage_files import MANIFEST
from endtask.pipeline.run import Run, run
from endtask.progress import say
from endtask.reporting.format import plural

RECORD = record_file("compare")
LAST_STAGE = {"test": "evaluate", "dev": "finetune"}
"""Where runs stop, by the split that they are compared on."""
_FINETUNE_SEEDS = "finetune.seeds"

Tree = dict[str, Any]


def compare(
    settings: Settings,
    study: Study | Mapping[str, Any],
    *,
    presets: Presets | None = None,
    until: str | None = None,
    devices: Sequence[str] = (),
    sources: Sequence[Path] = (),
    where: str = "study",
    results: Path | None = None,
    start_worker: StartWorker = DeviceWorker,
) -> ComparisonResult:
    """Run or resume a comparison in the folder `settings.output_dir` and return its tables.

    Every variant and pre-training seed is a run in `variants/NAME/seed-N`. `until` is the last stage of all runs.
    `devices` are numbers of GPUs that trials are spread over; a GPU that is listed twice runs two trials at a time;
    `cluster` stands for the GPUs or machines of the Ray cluster of `cluster.address`.
    Without devices trials run one after the other in this process. `presets` has the same settings with other presets,
    for variants with a preset. `sources` are folders of other runs whose finished stages may be reused. `where` is
    the origin of the study in messages. `results` is a file that is written again after every trial, so that a stopped
    comparison loses no result.
    """
    study = study if isinstance(study, Study) else check_study(study, where)
    check_no_storage(settings, *(presets or {}).values())
    folder = Run(settings).folder
    settings, presets = _with_shared_tokenizer(settings, study, presets or {}, folder, where)
    plan = make_plan(settings, study, where, presets)
    last = _last_stage(until, study)
    if CLUSTER in devices:
        devices, start_worker = on_cluster(devices, settings, folder)
    else:
        check_devices(devices, settings.device)
    warn_about_shared_devices(devices, (variant.settings.budget for variant in plan.variants))
    runs = TrialRuns(plan, folder, sources)
    runs.check(last)
    make_output_folder(folder, RECORD)
    with run_lock(folder):
        record = _open_record(folder, plan)
        runs.check_unchanged()
        record = record.save()
        trains = STAGES.index(last) > STAGES.index(LAST_PREPARED)
        runs.prepare(last, on_devices=trains and bool(devices))
        if trains:
            record = TrainTrials(runs, record, study, last, results).run(devices, start_worker)
        return _finish(runs, record, study, last, results)


def compare_finished(
    settings: Settings,
    study: Study | Mapping[str, Any],
    *,
    presets: Presets | None = None,
    results: Path | None = None,
    where: str = "study",
) -> ComparisonResult:
    """Test the finished trials in the folder `settings.output_dir` without training.

    Needs the task, but neither the corpus nor a device. The record's spec does not change, so that `compare` can
    resume.
    """
    study = study if isinstance(study, Study) else check_study(study, where)
    folder = Run(settings).folder
    read_record(folder, "compare")  # raises if the folder has no comparison
    runs = TrialRuns(make_plan(settings, study, where, presets), folder, reads_corpus=False)
    with run_lock(folder):
        record = _open_record(folder, runs.plan)
        runs.check_same_task()
        _check_any_finished(read_results(runs, record, study.by, tested=False, compute=False), runs)
        result = read_results(runs, record, study.by, tested=True)
        read_record(folder, "compare").with_outcome(result.to_dict())
        _write(result, results)
    return result


def read_comparison_folder(folder: Path) -> tuple[Settings, Study, Presets]:
    """Return the settings, study and presets of the last call in a comparison's folder."""
    record, path = read_record(folder, "compare"), str(folder / RECORD)
    settings, *presets = (
        resolve({**tree, "output_dir": str(folder)}, path)
        for tree in (record.spec["settings"], *record.spec["presets"].values())
    )
    study = check_study(record.spec["study"], path)
    return settings, study, dict(zip(record.spec["presets"], presets, strict=True))


def is_comparison(folder: Path) -> bool:
    """Return whether the folder has a comparison."""
    return (folder / RECORD).is_file()


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


def _open_record(folder: Path, plan: Plan) -> Record:
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


class TrainTrials:
    """Trains all trials that are not finished and have not failed."""

    def __init__(self, runs: TrialRuns, record: Record, study: Study, last: str, results: Path | None) -> None:
        self._runs, self._record, self._study, self._last = runs, record, study, last
        self._results = results
        self._trials = {trial.key: trial for trial in _by_seed(runs.trials)}

    def run(self, devices: Sequence[str], start_worker: StartWorker) -> Record:
        """Train in this process, or on the devices. Return the record with the failures."""
        pending = [trial for trial in self._trials.values() if trial.key not in self._record.trials]
        pending = [trial for trial in pending if not self._runs.is_finished(trial, self._last)]
        self._runs.write_missing_reports(self._last)
        if pending and is_scored(self._last, self._study):
            self._store_earlier()
        if devices:
            self._run_on_devices(pending, devices, start_worker)
        else:
            for trial in pending:
                self._run_in_process(trial)
        return self._record

    def _run_in_process(self, trial: Trial) -> None:
        self._announce(trial, "")
        try:
            self._runs.train(trial, self._last)
        except TrainingError as error:  # the result of this trial; the others continue
            self._record = self._record.with_trial(trial.key, {"failure": str(error)})
        self._store()

    def _run_on_devices(self, trials: Sequence[Trial], devices: Sequence[str], start_worker: StartWorker) -> None:
        stages = {
            key: [self._runs.stages(trial)[name] for name in TRAINING_STAGES] for key, trial in self._trials.items()
        }
        done = frozenset(stage.fingerprint for folders in stages.values() for stage in folders if stage.is_finished())
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

    def _before(self, job: Job, device: str) -> None:
        self._announce(self._trials[job.key], f", on {f'GPU {device}' if device.isdecimal() else device}")
        self._runs.reuse(self._trials[job.key])

    def _after(self, job: Job, end: JobEnd) -> None:
        if end.status == "finished":
            say(f"{job.key}: finished")
        elif end.status == "failed":
            self._record = self._record.with_trial(job.key, {"failure": end.message})
        self._store()

    def _announce(self, trial: Trial, suffix: str) -> None:
        number, name = list(self._trials).index(trial.key) + 1, trial.variant.name
        say(f"run {number} of {len(self._trials)}: variant {name}, pre-training seed {trial.seed}{suffix}")

    def _store(self) -> None:
        """Write the page and the results so far, without tests, which are slow.

        Untrained baselines are slow too, so the trial that ended is written before they are computed.
        """
        if not is_scored(self._last, self._study):
            return
        result = self._results_so_far()
        if not set(result.missing).isdisjoint(self._runs.plan.untrained):
            _write(result, self._results)
            result = self._results_so_far(compute=True)
        _write(result, self._results)

    def _store_earlier(self) -> None:
        """Write the results of earlier calls, in case this call is stopped before its first trial ends."""
        result = self._results_so_far()
        if result.has_trained_trials and result.missing and self._results is not None:
            write_results(result, self._results)

    def _results_so_far(self, *, compute: bool = False) -> ComparisonResult:
        return read_results(self._runs, self._record, self._study.by, tested=False, compute=compute)


def _write(result: ComparisonResult, results: Path | None) -> None:
    write_comparison_page(result)
    if results is not None:
        write_results(result, results)


def _finish(runs: TrialRuns, record: Record, study: Study, last: str, results: Path | None) -> ComparisonResult:
    scored = is_scored(last, study)
    result = read_results(runs, record, study.by, tested=scored, compute=scored)
    if scored:
        record.with_outcome(result.to_dict())
        _write(result, results)
    elif results is not None:
        write_results(result, results)
    if scored and not result.has_trained_trials:
        raise InputError(f"no run trained to its end; the first: {result.failures[0]}", path=record.folder)
    return result


def _check_any_finished(result: ComparisonResult, runs: TrialRuns) -> None:
    if result.has_trained_trials:
        return
    failed = f", {plural(len(result.failures), 'run')} failed" if result.failures else ""
    raise InputError(
        f"no run of {len(runs.trials)} is finished{failed}: there is nothing to test",
        path=runs.folder,
        hint=f"endtask compare {runs.folder} resumes and trains them",
    )
