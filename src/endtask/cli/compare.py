"""`endtask compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from endtask.cli.options import (
    BesideOption,
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

if TYPE_CHECKING:
    from endtask.compare import Outcome

NAME = "compare"
EXAMPLES = examples(
    "endtask compare my-task.yaml --seeds 0,1,2  # the settings against every baseline",
    "endtask compare my-task.yaml --values model.size=mini,small --values pretrain.weighting.rho1=19,99 --by dev",
    "endtask compare my-task.yaml --cell small: --cell large:model.size=base,pretrain.learning_rate=5e-4 --seeds 0,1",
    "endtask compare my-task.yaml --cells cells.yaml --devices 0,1 --results scores.json",
    "endtask compare runs/my-task-compare      # go on after a stop",
    "endtask compare runs/my-task-compare --finished --results scores.json  # or judge what is there",
    "endtask compare --bundle my-task-compare.tar.zst --devices 0,1  # made by endtask bundle on another machine",
)

CellsOption = Annotated[
    Path | None, typer.Option("--cells", metavar="FILE", help="Cells, seeds and baselines as YAML or JSON.")
]
CellOption = Annotated[
    list[str] | None,
    typer.Option("--cell", metavar="NAME:KEY=VALUE,...", help="A cell and the settings it differs in; repeatable."),
]
ValuesOption = Annotated[
    list[str] | None,
    typer.Option("--values", metavar="KEY=A,B,...", help="A cell for each value, or combination of them; repeatable."),
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
NoBaselinesOption = Annotated[bool, typer.Option("--no-baselines", help="Cells alone.")]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="PATH", help="A model to fine-tune as a baseline.")
]
AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="NAME", help="The cell all others are tested against [the first].")
]
ByOption = Annotated[str | None, typer.Option("--by", metavar="SPLIT", help="dev: no run looks at test [test].")]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="STAGE", help="Stop all runs after this stage.")]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices", metavar="0,1,...", help="Spread the runs over these GPUs; one named twice takes two at a time."
    ),
]
BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Unpack this to --output [runs/NAME] if need be, and go on there."),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(
        "--results", metavar="FILE", help="Write scores, predictions and cost as one JSON file, again after every run."
    ),
]
FinishedOption = Annotated[bool, typer.Option("--finished", help="Judge the runs that are finished; train nothing.")]


def command(
    settings: SettingsPath = None,
    task: TaskOption = None,
    corpus: CorpusOption = None,
    budget: BudgetOption = None,
    output: BesideOption = None,
    preset: PresetOption = None,
    overrides: SetOption = None,
    cells: CellsOption = None,
    cell: CellOption = None,
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
    """Compare settings with evidence: cells x seeds, baselines, paired tests, intervals and cost in one table.

    Every cell and pre-training seed is a run of its own; what runs have in common is done once. The budget is for each
    run. The same command given again goes on after a stop; cells and seeds may be added. The folder is the run's with
    `-compare` behind it, unless --output names another. Exit code 1: the training of some run broke.
    """
    from endtask.compare import compare, judge_finished
    from endtask.compare.flags import from_file, is_comparison, read_comparison_folder, with_flags
    from endtask.reporting.results import check_results_file

    set_quiet(quiet)
    if results is not None:
        check_results_file(results)
    if finished:
        _refuse_training({"--devices": devices, "--until": until})
    flags = _flags(cell, values, seeds, finetune_seeds, baseline, no_baselines, checkpoint, against, by)
    given = {"--task": task, "--corpus": corpus, "--budget": budget, "--preset": preset, "--set": overrides}
    lender: Path | None = None
    if bundle is not None:
        _refuse_settings({"SETTINGS": settings, **given, "--cells": cells}, bundle)
        settings, output = _unpacked(bundle, output), None
    if settings is not None and is_comparison(settings):
        _refuse_settings({**given, "--output": output, "--cells": cells}, settings)
        resolved, comparison = read_comparison_folder(settings)
    else:
        resolved = settings_from(settings, task=task, corpus=corpus, budget=budget, preset=preset, overrides=overrides)
        if resolved.output_dir:
            lender = Path(resolved.output_dir)  # the run itself, if it was made before
            folder = str(output or f"{resolved.output_dir.rstrip('/')}-compare")
            resolved = resolved.model_copy(update={"output_dir": folder})
        comparison = from_file(cells, resolved)
    comparison = with_flags(comparison, flags)
    where = "--cell" if cell else "--values" if values else str(cells or NAME)
    if finished:
        _show(judge_finished(resolved, comparison, results=results, where=where), as_json)
        return
    outcome = compare(
        resolved,
        comparison,
        until=until,
        devices=[device.strip() for device in devices.split(",")] if devices else (),
        lenders=[lender] if lender else (),
        where=where,
        results=results,
    )
    _show(outcome, as_json)
    if outcome.has_failures:
        raise typer.Exit(1)


def _flags(
    cell: list[str] | None,
    values: list[str] | None,
    seeds: str | None,
    finetune_seeds: str | None,
    baseline: list[str] | None,
    no_baselines: bool,
    checkpoint: str | None,
    against: str | None,
    by: str | None,
) -> dict[str, Any]:
    from endtask.compare.flags import read_cells, read_grid, read_numbers

    if baseline and no_baselines:
        raise InputError("give one of --baseline and --no-baselines")
    return {
        "cells": read_cells(cell) if cell else None,
        "grid": read_grid(values) if values else None,
        "seeds": read_numbers(seeds, "--seeds"),
        "finetune_seeds": read_numbers(finetune_seeds, "--finetune-seeds"),
        "baselines": [] if no_baselines else baseline or None,
        "checkpoint": checkpoint,
        "against": against,
        "by": by,
    }


def _refuse_settings(given: dict[str, object], folder: Path) -> None:
    flag = next((name for name, value in given.items() if value), None)
    if flag is not None:
        hint = "cells and seeds may be added; for other settings choose another --output"
        raise InputError(f"{flag}: the settings of this comparison stand", path=folder, hint=hint)


def _refuse_training(given: dict[str, str | None]) -> None:
    flag = next((name for name, value in given.items() if value), None)
    if flag is not None:
        raise InputError(f"--finished trains nothing, and {flag} is about training", hint="leave out one of them")


def _unpacked(bundle: Path, output: Path | None) -> Path:
    """The folder of the bundle's comparison, unpacked if it is not there yet."""
    from endtask.bundle.unpack import bundle_header, unbundle
    from endtask.compare.record import COMPARE_FILE

    header = bundle_header(bundle)
    if COMPARE_FILE not in header.files:
        is_one = len(header.runs) == 1
        hint = f"endtask run --bundle {bundle}" if is_one else f"endtask bundle {bundle} --unpack"
        raise InputError("holds no comparison", path=bundle, hint=hint)
    return unbundle(bundle, output)


def _show(outcome: Outcome, as_json: bool) -> None:
    from endtask.compare.page import PAGE
    from endtask.compare.table import print_table, verdict

    if as_json:
        print(json.dumps(outcome.statistics(), ensure_ascii=False))
    elif not outcome.is_tested:
        print(f"prepared: {outcome.folder}")
    else:
        print_table(outcome)
        print(verdict(outcome))
        print(f"report: {outcome.folder / PAGE}")
