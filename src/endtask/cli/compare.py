"""`endtask compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from endtask.cli.options import (
    BudgetOption,
    CorpusOption,
    DevicesOption,
    ExperimentOutputOption,
    JsonOption,
    PresetOption,
    QuietOption,
    SetOption,
    StudyTasksOption,
    TaskOption,
    VariableOption,
    examples,
    print_outcomes,
    settings_from,
)
from endtask.config import Settings
from endtask.errors import InputError
from endtask.progress import say, set_quiet
from endtask.terminal import print_lines

if TYPE_CHECKING:
    from endtask.experiments import ComparisonResult
    from endtask.experiments.spec import TaskStudy

NAME = "compare"
EXAMPLES = examples(
    "endtask compare my-task.yaml --seeds 0,1,2  # the settings against every baseline",
    "endtask compare my-task.yaml --values model.size=mini,small --values pretrain.weighting.rho1=19,99 --by dev",
    "endtask compare my-task.yaml --variant small: --variant large:model.size=base,pretrain.learning_rate=5e-4",
    "endtask compare my-task.yaml --study variants.yaml --devices 0,1 --results scores.json",
    "endtask compare studies/tartan.yaml --study-tasks sciie --only tapt,meta-tapt --var data=/mnt/data",
    "endtask compare runs/my-task-compare      # resume after a stop",
    "endtask compare runs/my-task-compare --finished --results scores.json  # or test the finished runs",
    "endtask compare --bundle my-task-compare.tar.zst --devices 0,1  # made by endtask bundle on another machine",
)

SettingsArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="SETTINGS", help="Settings file, study file, or the folder of a run or a comparison (YAML or JSON)."
    ),
]
StudyOption = Annotated[
    Path | None, typer.Option("--study", metavar="FILE", help="Variants, seeds and baselines as YAML or JSON.")
]
OnlyOption = Annotated[str | None, typer.Option("--only", metavar="A,B,...", help="Some of the variants.")]
VariantOption = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="NAME:KEY=VALUE,...", help="A variant and its settings; repeatable."),
]
ValuesOption = Annotated[
    list[str] | None,
    typer.Option("--values", metavar="KEY=A,B,...", help="A variant for each value or combination; repeatable."),
]
SeedsOption = Annotated[
    str | None, typer.Option("--seeds", metavar="A,B,...", help="Pre-training seeds, a run for each.")
]
FinetuneSeedsOption = Annotated[
    str | None, typer.Option("--finetune-seeds", metavar="A,B,...", help="Fine-tuning seeds in every run.")
]
BaselineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--baseline",
        metavar="NAME",
        help="majority, tfidf, no_corpus, random or checkpoint; repeatable [all that apply].",
    ),
]
NoBaselinesOption = Annotated[bool, typer.Option("--no-baselines", help="Variants alone.")]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="PATH", help="A model to fine-tune as a baseline.")
]
AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="NAME", help="The variant to test the others against [the first].")
]
ByOption = Annotated[str | None, typer.Option("--by", metavar="SPLIT", help="dev: no run reads test [test].")]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop all runs after this stage.")]
BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Unpack a bundle to --output [runs/NAME], and resume there."),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(
        "--results",
        metavar="FILE",
        help="JSON file of scores, predictions and cost, written after every run; with several tasks, a folder.",
    ),
]
FinishedOption = Annotated[bool, typer.Option("--finished", help="Test the runs that are finished; train nothing.")]


def command(
    settings: SettingsArgument = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    output: ExperimentOutputOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    study: StudyOption = None,
    variables: VariableOption = None,
    tasks: StudyTasksOption = None,
    only: OnlyOption = None,
    variant: VariantOption = None,
    values: ValuesOption = None,
    seeds: SeedsOption = None,
    finetune_seeds: FinetuneSeedsOption = None,
    baseline: BaselineOption = None,
    no_baselines: NoBaselinesOption = False,
    checkpoint: CheckpointOption = None,
    against: AgainstOption = None,
    by: ByOption = None,
    until: UntilOption = None,
    devices: DevicesOption = None,
    bundle: BundleOption = None,
    results: ResultsOption = None,
    finished: FinishedOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare settings with evidence: variants x seeds, baselines, paired tests, intervals and cost in one table.

    Every variant and pre-training seed is a run of its own; runs reuse each other's stages. The budget is for each
    run. The same command resumes after a stop; variants and seeds may be added. The folder is that of the run with
    `-compare` appended, or runs/STUDY, unless --output names another. Exit code 1: the training of some run failed.
    """
    from endtask.experiments.compare import compare_finished, compare_tasks, is_comparison, read_comparison_folder
    from endtask.experiments.flags import read_names, with_flags
    from endtask.experiments.spec import TaskStudy
    from endtask.experiments.task_comparison import Comparison

    set_quiet(quiet)
    if finished:
        _check_no_training({"--devices": devices, "--until": until})
    flags = _flags(only, variant, values, seeds, finetune_seeds, baseline, no_baselines, checkpoint, against, by)
    setting_flags = {"--task": task, "--corpus": corpus, "--budget": budget, "--preset": preset, "--set": overrides}
    study_flags = {"--study": study, "--var": variables, "--study-tasks": tasks}
    sources: list[Path] = []
    if bundle is not None:
        _check_no_settings({"SETTINGS": settings, **setting_flags, **study_flags}, bundle)
        settings, output = unpacked_comparison(bundle, output), None
    if settings is not None and is_comparison(settings):
        _check_no_settings({**setting_flags, "--output": output, **study_flags}, settings)
        resolved, recorded, presets = read_comparison_folder(settings)
        experiments = [TaskStudy("", resolved, with_flags(recorded, flags), presets)]
    else:
        experiments, sources = _experiments(settings, study, variables, tasks, flags, output, setting_flags)
    files = _results_files(results, experiments)
    where = "--variant" if variant else "--values" if values else str(study or settings or NAME)
    run_devices = read_names(devices) or experiments[0].study.devices
    outcomes: dict[str, ComparisonResult] = {}
    comparisons: dict[str, Comparison] = {}
    for experiment, file in zip(experiments, files, strict=True):
        spec = experiment.settings, experiment.study
        if finished:
            if experiment.name:
                say(f"task {experiment.name}")
            outcomes[experiment.name] = compare_finished(*spec, presets=experiment.presets, results=file, where=where)
        else:
            comparisons[experiment.name] = Comparison(
                *spec, presets=experiment.presets, until=until, sources=sources, where=where, results=file
            )
    if comparisons:
        outcomes = compare_tasks(comparisons, run_devices)
    print_outcomes(outcomes, as_json, _print)
    if not finished and any(outcome.failures for outcome in outcomes.values()):
        raise typer.Exit(1)


def _flags(
    only: str | None,
    variant: list[str] | None,
    values: list[str] | None,
    seeds: str | None,
    finetune_seeds: str | None,
    baseline: list[str] | None,
    no_baselines: bool,
    checkpoint: str | None,
    against: str | None,
    by: str | None,
) -> dict[str, Any]:
    from endtask.experiments.flags import read_grid, read_names, read_numbers, read_variants

    if baseline and no_baselines:
        raise InputError("give one of --baseline and --no-baselines")
    return {
        "only": read_names(only),
        "variants": read_variants(variant) if variant else None,
        "grid": read_grid(values) if values else None,
        "seeds": read_numbers(seeds, "--seeds"),
        "finetune_seeds": read_numbers(finetune_seeds, "--finetune-seeds"),
        "baselines": [] if no_baselines else baseline or None,
        "checkpoint": checkpoint,
        "against": against,
        "by": by,
    }


def _experiments(
    path: Path | None,
    study_file: Path | None,
    variables: list[str] | None,
    tasks: str | None,
    flags: dict[str, Any],
    output: Path | None,
    setting_flags: dict[str, Any],
) -> tuple[list[TaskStudy], list[Path]]:
    """Return an experiment for each task, and the run folders whose stages they may reuse."""
    from endtask.experiments.flags import read_names, read_variables, with_flags
    from endtask.experiments.spec import Study, is_study_file, read_study, study_tasks
    from endtask.experiments.variants import listed_variants

    if path is not None and is_study_file(path):
        if study_file is not None:
            raise InputError("SETTINGS is a study already", path=path, key="--study", hint="leave out one of them")
        output = output or Path("runs") / path.stem
        path, study_file = None, path
    if variables and study_file is None:
        raise InputError("--var is for the variables of a study", hint="--study FILE")
    study = read_study(study_file, read_variables(variables or ())) if study_file is not None else Study()
    if study.tasks and study_file is not None:
        output = output or Path("runs") / study_file.stem
    sources: list[Path] = []

    def load(values: dict[str, Any], preset: str | None) -> Settings:
        settings = settings_from(
            path,
            task=setting_flags["--task"],
            corpus=setting_flags["--corpus"],
            budget=setting_flags["--budget"],
            preset=setting_flags["--preset"] or preset,
            overrides=setting_flags["--set"],
            values=values,
        )
        if not settings.output_dir:
            return settings
        sources[:] = [Path(settings.output_dir)]  # the run with these settings, if it exists
        folder = str(output or f"{settings.output_dir.rstrip('/')}-compare")
        return settings.model_copy(update={"output_dir": folder})

    task_names = read_names(tasks) or ()
    if study_file is not None:
        for experiment in study_tasks(study, load, task_names):  # errors of the file name the file
            listed_variants(experiment.settings, experiment.study, str(study_file), experiment.presets)
    return study_tasks(with_flags(study, flags), load, task_names), sources


def _results_files(results: Path | None, experiments: list[TaskStudy]) -> list[Path | None]:
    """Return the results file of each experiment; files of several experiments are in a folder."""
    from endtask.reporting.results import check_results_file

    if results is None:
        return [None] * len(experiments)
    if not experiments[0].name:
        check_results_file(results)
        return [results]
    check_results_file(results / "results.json" if results.is_dir() else results)
    results.mkdir(exist_ok=True)
    return [results / f"{experiment.name}.json" for experiment in experiments]


def _check_no_settings(flags: dict[str, object], folder: Path) -> None:
    flag = next((name for name, value in flags.items() if value), None)
    if flag is not None:
        hint = "variants and seeds may be added; for other settings choose another --output"
        raise InputError(f"{flag}: this comparison has its settings already", path=folder, hint=hint)


def _check_no_training(flags: dict[str, str | None]) -> None:
    flag = next((name for name, value in flags.items() if value), None)
    if flag is not None:
        raise InputError(f"--finished trains nothing, and {flag} is about training", hint="leave out one of them")


def unpacked_comparison(bundle: Path, output: Path | None) -> Path:
    """Return the folder of the bundle's comparison; unpack the bundle if needed."""
    from endtask.bundle.unpack import bundle_header, unbundle
    from endtask.experiments.task_comparison import RECORD

    header = bundle_header(bundle)
    if RECORD not in header.files:
        is_single_run = len(header.runs) == 1
        hint = f"endtask run --bundle {bundle}" if is_single_run else f"endtask bundle {bundle} --unpack"
        raise InputError("holds no comparison", path=bundle, hint=hint)
    return unbundle(bundle, output)


def _print(outcome: ComparisonResult) -> None:
    from endtask.experiments.compare_report import PAGE, print_comparison

    if outcome.is_tested:
        print_comparison(outcome)
        print_lines(f"report: {outcome.folder / PAGE}")
    else:
        print_lines(f"prepared: {outcome.folder}")
