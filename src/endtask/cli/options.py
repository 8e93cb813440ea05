"""The options that several commands share, and how they become settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from endtask.config import Budget, Settings, load_settings
from endtask.config.loading import merge
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE

SettingsPath = Annotated[
    Path | None, typer.Argument(metavar="SETTINGS", help="Settings file (YAML or JSON), or the folder of a run.")
]
TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="TEXT", help="Labelled data: file, folder, hf:NAME or docstrings.")
]
CorpusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        metavar="TEXT",
        help="Unlabelled text: file, folder, 'glob', hf:NAME or docstrings; may be repeated.",
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget", metavar="AMOUNT", help="How much training may cost: 600s, 10min, 50Mtok, 2000steps, 1e17flops."
    ),
]
OutputOption = Annotated[Path | None, typer.Option("--output", metavar="FOLDER", help="The run's folder [runs/TASK].")]
ExperimentOutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="FOLDER", help="Its folder [runs/TASK-compare, runs/TASK-search].")
]
PresetOption = Annotated[str | None, typer.Option("--preset", metavar="NAME", help="Start from a shipped preset.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting: --set pretrain.learning_rate=1e-3; may be repeated."
    ),
]
VariableOption = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=TEXT", help="A variable of the study, such as data=/mnt/data; repeatable."),
]
StudyTasksOption = Annotated[
    str | None, typer.Option("--study-tasks", metavar="A,B,...", help="Some of the study's tasks.")
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices", metavar="0,1,...", help="Spread the runs over these GPUs; one named twice runs two at a time."
    ),
]
StartOption = Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Redo this stage and all after it.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print figures as JSON on standard output.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error, only warnings.")]


def settings_from(
    path: Path | None,
    *,
    task: str | None = None,
    corpus: list[str] | None = None,
    budget: str | None = None,
    output: Path | None = None,
    preset: str | None = None,
    overrides: list[str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from a file or run folder and the flags; the run's folder defaults to `runs/TASK`.

    `values` are nested values of a study: they override the file, and flags override them.
    """
    given: dict[str, Any] = {}
    merge(given, values or {})
    if path is not None and path.is_dir():
        given["output_dir"] = str(path)  # the folder may have been moved or copied since
        path = path / SETTINGS_FILE
    if task is not None:
        merge(given, {"task": {"path": task}})
    if corpus:
        merge(given, {"corpus": {"sources": [source_settings(entry) for entry in corpus]}})
    if budget is not None:
        given["budget"] = _budget(budget)
    if output is not None:
        given["output_dir"] = str(output)
    settings = load_settings(path, preset=preset, given=given, overrides=overrides or ())
    if settings.output_dir or not settings.task.path:
        return settings
    name = Path(settings.task.path).resolve().name.split(".")[0]
    return settings.model_copy(update={"output_dir": f"runs/{name or 'task'}"})


def _budget(text: str) -> str:
    """The same text, if it is a budget: a mistake in a flag is not one of the settings file."""
    try:
        Budget.parse(text)
    except ValueError as error:
        raise InputError(f"--budget: {error}") from None
    return text


def source_settings(entry: str) -> dict[str, str]:
    """One `--corpus` as a section of settings; it may say `name=path`."""
    from endtask.corpus.sources import parse_source

    return parse_source(entry).model_dump(exclude_none=True)


def examples(*commands: str) -> str:
    """Text for the end of a `--help` page; `\\b` stops Typer from joining the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def print_outcomes(outcomes: Mapping[str, Any], as_json: bool, print_outcome: Callable[[Any], None]) -> None:
    """Print the outcome of each task of a study, as JSON or in words; a single task may have no name."""
    if as_json:
        trees = {name: outcome.to_dict() for name, outcome in outcomes.items()}
        print(json.dumps(trees.get("", trees), ensure_ascii=False))
        return
    for name, outcome in outcomes.items():
        if name:
            print(f"task {name}")
        print_outcome(outcome)
