"""`endtask few-shot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from endtask.cli.options import (
    DevicesOption,
    JsonOption,
    QuietOption,
    StudyTasksOption,
    VariableOption,
    examples,
    print_outcomes,
    settings_from,
)
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_lines

if TYPE_CHECKING:
    from endtask.experiments.few_shot.few_shot_scores import FewShotOutcome
    from endtask.experiments.few_shot.few_shot_spec import FewShotSpec

NAME = "few-shot"
EXAMPLES = examples(
    "endtask few-shot runs/aligned runs/plain  # both with 50 to 1000 labels, tested against each other",
    "endtask few-shot runs/aligned --labels 200 --folds 5 --seeds 0,1",
    "endtask few-shot runs/aligned --labels 200 --train head,transformer,all --head new,keep",
    "endtask few-shot runs/both --labels 200 --train transformer --tasks main,all  # with its auxiliary tasks",
    "endtask few-shot runs/aligned --labels 200 --learning-rates 1e-4,1e-3 --set batch_size=32 --json",
    "endtask few-shot studies/alignment.yaml --var data=/mnt/data --devices 0,0,0",
    "endtask few-shot --bundle ct.tar.zst --devices 0,0,0  # a study that another machine prepared",
)


def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help="Folders of runs of one task with finished pre-training, or one study."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", metavar="A,B,...", help="Numbers of labels [50,100,150,200,1000].")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Draws of labels from train, scored on test [5].")
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", metavar="N", help="Instead, cross-validation over all rows.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A,B,...", help="Seeds of heads, batches and dropout [0,1].")
    ] = None,
    train: Annotated[
        str | None, typer.Option("--train", metavar="PARTS", help="Weights to train: head, transformer or all [head].")
    ] = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HEADS", help="new, or keep: the head of pre-training [new].")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option("--tasks", metavar="TASKS", help="main, or all: with auxiliary tasks [main].")
    ] = None,
    learning_rates: Annotated[
        str | None,
        typer.Option("--learning-rates", metavar="A,B,...", help="Learning rates [1e-3 for heads, else 1e-4]."),
    ] = None,
    held_out: Annotated[
        str | None, typer.Option("--held-out", metavar="SHARE", help="Rows that choose the epoch: a share, or dev.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="epochs, patience, batch_size, dropout or seed; repeatable."),
    ] = None,
    variables: VariableOption = None,
    study_tasks: StudyTasksOption = None,
    devices: DevicesOption = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="A study that `endtask compare --until pack` prepared."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="Folder of results [RUN-few-shot, runs/STUDY].")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train on few labels on top of pre-trained runs, many times, and draw learning curves.

    Every combination of run, trained part, head and tasks is a row of the table, tested against the first in pairs. A
    study pre-trains its variants first. The same command resumes after a stop; runs, labels, seeds and learning rates
    may be added.
    """
    from endtask.experiments.few_shot.few_shot import few_shot
    from endtask.experiments.flags import read_names
    from endtask.experiments.spec import is_study_file

    set_quiet(quiet)
    runs = runs or []
    if samples is not None and folds is not None:
        raise InputError("give one of --samples and --folds")
    lists = {"labels": labels, "seeds": seeds, "train": train, "head": head, "tasks": tasks}
    lists["learning_rates"] = learning_rates
    values: dict[str, Any] = {key: _read_list(text, key) for key, text in lists.items() if text is not None}
    values |= {key: number for key, number in {"samples": samples, "folds": folds}.items() if number is not None}
    if held_out is not None:
        values["held_out"] = held_out if held_out == "dev" else _read_number(held_out, "--held-out")
    device_names = read_names(devices) or []
    if (bundle is None) == (not runs):
        raise InputError("give runs, a study, or --bundle", hint="endtask few-shot RUN")
    if bundle is not None:
        if variables or study_tasks:
            raise InputError("--bundle: the study is in the bundle, with its variables and one of its tasks")
        outcomes = {"": _run_bundle(bundle, values, overrides or [], device_names, output)}
    elif len(runs) == 1 and is_study_file(runs[0]):
        outcomes = _run_study(runs[0], variables, study_tasks, values, overrides or [], device_names, output)
    else:
        if variables or study_tasks:
            raise InputError("--var and --study-tasks are for a study", hint="endtask few-shot STUDY.yaml")
        spec = _few_shot_spec({}, values, overrides or [])
        outcomes = {"": few_shot(runs, spec, output, devices=device_names)}
    print_outcomes(outcomes, as_json, _print)


def _run_study(
    path: Path,
    variables: list[str] | None,
    tasks: str | None,
    values: dict[str, Any],
    overrides: list[str],
    devices: list[str],
    output: Path | None,
) -> dict[str, FewShotOutcome]:
    from endtask.config import Settings
    from endtask.experiments.few_shot.few_shot import few_shot_study
    from endtask.experiments.flags import read_names, read_variables
    from endtask.experiments.spec import read_study, study_tasks

    study = read_study(path, read_variables(variables or ()))
    base = study.few_shot.model_dump(mode="json") if study.few_shot is not None else {}
    study = study.model_copy(update={"few_shot": _few_shot_spec(base, values, overrides)})
    folder = output or Path("runs") / path.stem

    def load(values: dict[str, Any], preset: str | None) -> Settings:
        return settings_from(None, preset=preset, values=values).model_copy(update={"output_dir": str(folder)})

    experiments = study_tasks(study, load, read_names(tasks) or ())
    return {
        experiment.name: few_shot_study(experiment, devices=devices or study.devices, where=str(path))
        for experiment in experiments
    }


def _run_bundle(
    bundle: Path, values: dict[str, Any], overrides: list[str], devices: list[str], output: Path | None
) -> FewShotOutcome:
    from endtask.cli.compare import unpacked_comparison
    from endtask.experiments.compare import read_comparison_folder
    from endtask.experiments.few_shot.few_shot import few_shot_study
    from endtask.experiments.spec import TaskStudy

    settings, study, presets = read_comparison_folder(unpacked_comparison(bundle, output))
    base = study.few_shot.model_dump(mode="json") if study.few_shot is not None else {}
    study = study.model_copy(update={"few_shot": _few_shot_spec(base, values, overrides)})
    return few_shot_study(TaskStudy("", settings, study, presets), devices=devices or study.devices, where=str(bundle))


def _few_shot_spec(base: dict[str, Any], values: dict[str, Any], overrides: list[str]) -> FewShotSpec:
    """Return the few-shot section of a study, changed by the flags."""
    from endtask.config.loading import apply_override
    from endtask.experiments.few_shot.few_shot_spec import check_few_shot

    tree = {**base, **values}
    for override in overrides:
        apply_override(tree, override)
    return check_few_shot(tree)


def _print(outcome: FewShotOutcome) -> None:
    from endtask.experiments.few_shot.few_shot_report import PAGE, print_few_shot

    print_few_shot(outcome)
    print_lines(f"report: {outcome.folder / PAGE}")


_NUMBER_FLAGS = {"labels": "--labels", "seeds": "--seeds", "learning_rates": "--learning-rates"}


def _read_list(text: str, key: str) -> list[Any]:
    """Return the values between commas, as numbers for the flags of numbers."""
    parts = [part.strip() for part in text.split(",")]
    return [_read_number(part, _NUMBER_FLAGS[key]) for part in parts] if key in _NUMBER_FLAGS else parts


def _read_number(text: str, flag: str) -> int | float:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        hint = "a share such as 0.25, or dev" if flag == "--held-out" else f"{flag} 1,2"
        raise InputError(f"{flag} {text!r}: not a number", hint=hint) from None
