"""`endtask run`."""

from __future__ import annotations

import json
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
from endtask.progress import set_quiet

NAME = "run"
EXAMPLES = examples(
    "endtask run --task data/chemprot --corpus 'corpus/*.jsonl.zst' --budget 10min --output runs/chemprot",
    "endtask run my-task.yaml --set train.learning_rate=1e-3",
    "endtask run runs/chemprot                  # go on after a stop",
    "endtask run runs/chemprot --from finetune  # redo fine-tuning and what follows",
)


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    output: OutputOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    until: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop after this stage.")] = None,
    start: StartOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Do the whole work: read, retrieve, select, pack, pretrain, finetune, evaluate, save, report.

    Finished stages are skipped and a stopped one goes on, so the same command may be given again at any time.
    """
    from endtask.report.page import verdict
    from endtask.run import Run
    from endtask.run import run as run_stages

    set_quiet(quiet)
    resolved = settings_from(
        settings, task=task, corpus=corpus, budget=budget, output=output, preset=preset, overrides=overrides
    )
    if dry_run:
        plan = Run(resolved).plan(until=until, start=start)
        print(json.dumps(dict(plan)) if as_json else "\n".join(f"{name:10} {state}" for name, state in plan))
        return
    result = run_stages(resolved, until=until, start=start)
    if as_json:
        print(json.dumps({"folder": str(result.folder), "stages": result.stages}, ensure_ascii=False))
        return
    print(verdict(result.folder))
    print(f"report: {result.folder / 'report.html'}")
    if "model" in result.stages:
        print(f'try it: endtask predict {result.folder} "some text"')
