"""`endtask check`."""

from __future__ import annotations

import typer

from endtask.cli.options import (
    BudgetOption,
    CorpusOption,
    JsonOption,
    PresetOption,
    QuietOption,
    SetOption,
    SettingsPath,
    TaskOption,
    examples,
    settings_from,
)
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "check"
EXAMPLES = examples(
    "endtask check --task data/acl-arc",
    "endtask check --task labels.csv --set task.columns.text=abstract --corpus 'corpus/*.jsonl.zst'",
    "endtask check my-task.yaml --json",
)


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read the data, list the problems, show tokenised and masked examples, and estimate time, memory and disk.

    Nothing is written. The exit code is 1 if a problem would spoil the result or stop the run.
    """
    from endtask.pipeline.check import check

    set_quiet(quiet or as_json)
    resolved = settings_from(settings, task=task, corpus=corpus, budget=budget, preset=preset, overrides=overrides)
    if not resolved.task.path:
        raise InputError("no task to check", key="task.path", hint="--task path/to/task")
    result = check(resolved)
    print_json(result.to_dict()) if as_json else print_lines(*result.lines())
    if result.has_errors:
        raise typer.Exit(1)
