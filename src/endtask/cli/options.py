"""The options that several commands share, and the settings made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from endtask.config import Budget, Settings, load_settings
from endtask.config.loading import merge
from endtask.errors import InputError
from endtask.io.run_layout import SETTINGS_FILE
from endtask.terminal import print_json, print_lines

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
        "--budget", metavar="AMOUNT", help="Limit of all training: 600s, 10min, 50Mtok, 2000steps or 1e17flops."
    ),
]
OutputOption = Annotated[Path | None, typer.Option("--output", metavar="FOLDER", help="The run's folder [runs/TASK].")]
ExperimentOutputOption = Annotated[
    Path | None,
    typer.Option("--output", metavar="FOLDER", help="The experiment's folder [runs/TASK-compare, runs/TASK-search]."),
]
PresetOption = Annotated[str | None, typer.Option("--preset", metavar="NAME", help="Start from a preset.")]
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
        "--devices",
        metavar="0,1,...",
        help="Spread the runs over these GPUs; a repeated GPU runs two at a time; cluster: those of Ray (compare).",
    ),
]
StartOption = Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Redo this stage and all after it.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print results as JSON on standard output.")]
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
    """Return settings from a file or run folder and the flags; the run's folder defaults to `runs/TASK`.

    `values` are nested values of a study: they override the file, and flags override them.
    """
    tree: dict[str, Any] = {}
    merge(tree, values or {})
    if path is not None and path.is_dir():
        tree["output_dir"] = str(path)  # the folder may have been moved or copied
        path = path / SETTINGS_FILE
    if task is not None:
        merge(tree, {"task": {"path": task}})
    if corpus:
        merge(tree, {"corpus": {"sources": [source_settings(entry) for entry in corpus]}})
    if budget is not None:
        tree["budget"] = _checked_budget(budget)
    if output is not None:
        tree["output_dir"] = str(output)
    settings = load_settings(path, preset=preset, given=tree, overrides=overrides or ())
    if settings.output_dir or not settings.task.path:
        return settings
    name = Path(settings.task.path).resolve().name.split(".")[0]
    return settings.model_copy(update={"output_dir": f"runs/{name or 'task'}"})


def _checked_budget(text: str) -> str:
    """Return the text if it is a budget, else raise an `InputError` that names the flag."""
    try:
        Budget.parse(text)
    except ValueError as error:
        raise InputError(f"--budget: {error}") from None
    return text


def source_settings(entry: str) -> dict[str, str]:
    """Return the settings of a `--corpus` entry, which may be `name=path`."""
    from endtask.corpus.sources import parse_source

    return parse_source(entry).model_dump(exclude_none=True)


def examples(*commands: str) -> str:
    """Return the examples at the end of a `--help` page; `\\b` stops Typer from joining the lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {command}" for command in commands)


def print_outcomes(outcomes: Mapping[str, Any], as_json: bool, print_outcome: Callable[[Any], None]) -> None:
    """Print the outcome of each task of a study, as JSON or as text; a single task may have no name."""
    if as_json:
        trees = {name: outcome.to_dict() for name, outcome in outcomes.items()}
        print_json(trees.get("", trees))
        return
    for name, outcome in outcomes.items():
        if name:
            print_lines(f"task {name}")
        print_outcome(outcome)
