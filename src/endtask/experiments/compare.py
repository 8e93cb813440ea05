"""Compare settings: variants x pre-training seeds x fine-tuning seeds, baselines, tests, intervals and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.experiments.comparison import ComparisonResult, read_results
from endtask.experiments.ray_workers import CLUSTER, on_cluster
from endtask.experiments.record import read_record
from endtask.experiments.scheduler import DeviceWorker, StartWorker, check_devices, warn_about_shared_devices
from endtask.experiments.shared_devices import SharedDevices
from endtask.experiments.spec import Presets, Study, check_study
from endtask.experiments.task_comparison import RECORD, Comparison, open_record, write_outcome
from endtask.experiments.trial_runs import TrialRuns, make_plan
from endtask.io.processes import run_lock
from endtask.pipeline.run import Run
from endtask.progress import say
from endtask.reporting.format import plural


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
    comparison = Comparison(
        settings, study, presets=presets, until=until, sources=sources, where=where, results=results
    )
    (result,) = compare_tasks({"": comparison}, devices, start_worker).values()
    return result


def compare_tasks(
    comparisons: Mapping[str, Comparison], devices: Sequence[str] = (), start_worker: StartWorker = DeviceWorker
) -> dict[str, ComparisonResult]:
    """Run or resume the comparisons of several tasks and return their results by the names of the tasks.

    Devices are shared by all of them: the trials of a task are prepared while those of the task before train.
    """
    first = next(iter(comparisons.values()))
    if CLUSTER in devices:
        devices, start_worker = on_cluster(devices, first.plan.settings, first.folder)
    else:
        check_devices(devices, first.plan.settings.device)
    if not devices:
        return {name: _compare_here(name, comparison) for name, comparison in comparisons.items()}
    for comparison in comparisons.values():
        warn_about_shared_devices(devices, (variant.settings.budget for variant in comparison.plan.variants))
    with ExitStack() as stack:
        for comparison in comparisons.values():
            stack.enter_context(comparison.opened())
        return SharedDevices(comparisons).train(devices, start_worker)


def _compare_here(name: str, comparison: Comparison) -> ComparisonResult:
    if name:
        say(f"task {name}")
    with comparison.opened():
        for trial in comparison.prepared(on_devices=False):
            comparison.train(trial)
        return comparison.finished()


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
        record = open_record(folder, runs.plan)
        runs.check_same_task()
        _check_any_finished(read_results(runs, record, study.by, tested=False, compute=False), runs)
        result = read_results(runs, record, study.by, tested=True)
        read_record(folder, "compare").with_outcome(result.to_dict())
        write_outcome(result, results)
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


def _check_any_finished(result: ComparisonResult, runs: TrialRuns) -> None:
    if result.has_trained_trials:
        return
    failed = f", {plural(len(result.failures), 'run')} failed" if result.failures else ""
    raise InputError(
        f"no run of {len(runs.trials)} is finished{failed}: there is nothing to test",
        path=runs.folder,
        hint=f"endtask compare {runs.folder} resumes and trains them",
    )
