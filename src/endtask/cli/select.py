"""`endtask select`."""

from __future__ import annotations

from typing import Annotated

import typer

from endtask.cli.options import (
    BudgetOption,
    CorpusOption,
    JsonOption,
    OutputOption,
    PresetOption,
    QuietOption,
    SetOption,
    SettingsPath,
    StartOption,
    TaskOption,
    examples,
    settings_from,
)
from endtask.cli.retrieve import selection_lines
from endtask.errors import InputError
from endtask.progress import set_quiet
from endtask.terminal import print_json, print_lines

NAME = "select"
EXAMPLES = examples(
    "endtask select runs/chemprot --set select.name=dsir --dry-run       # what would be selected?",
    "endtask select runs/chemprot --set select.name=dsir --from select   # replace the selection; training is redone",
    "endtask select runs/chemprot --set select.name=fusion --set 'select.selectors=[best_rank,classifier]' --dry-run",
    "endtask select runs/chemprot --set select.name=nearest_neighbors --set select.embedding=package:NAME --dry-run",
)


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    output: OutputOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    start: StartOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be selected; change nothing.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Select the passages to train on from the retrieved passages, and print statistics about them before any training.

    Runs earlier stages if needed. The statistics: how close the selected text is to the task's words (KL divergence),
    how many of its words indicate a class, and how much of it best_rank would select too.
    """
    from endtask.io.run_layout import SELECTION
    from endtask.pipeline.dry_run import dry_run_selection
    from endtask.pipeline.run import run

    set_quiet(quiet)
    if dry_run and start is not None:
        hint = "leave out one of them: a dry run redoes nothing"
        raise InputError("--from and --dry-run do not go together", hint=hint)
    resolved = settings_from(
        settings, task=task, corpus=corpus, budget=budget, output=output, preset=preset, overrides=overrides
    )
    if dry_run:
        counts, table = dry_run_selection(resolved), None
    else:
        result = run(resolved, until="select", start=start)
        counts, table = result.stages["select"], result.folder / "select" / SELECTION
    if as_json:
        print_json({"select": counts, "table": str(table) if table else None})
        return
    lines = selection_lines(counts, has_corpus=bool(resolved.corpus.sources))
    print_lines(f"selector: {resolved.select.name}", *lines, *([f"table: {table}"] if table else []))
