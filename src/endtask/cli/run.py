"""`endtask run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
from endtask.cli.predict import trial_line
from endtask.errors import InputError
from endtask.processes import is_started_by_torchrun, join_processes
from endtask.progress import recorded, set_quiet
from endtask.terminal import print_json, print_lines

NAME = "run"
IN_SEVERAL_PROCESSES = True
EXAMPLES = examples(
    "endtask run --task data/chemprot --corpus 'corpus/*.jsonl.zst' --budget 10min --output runs/chemprot",
    "endtask run my-task.yaml --set pretrain.learning_rate=1e-3",
    "endtask run runs/chemprot                  # resume after a stop",
    "endtask run my-task.yaml --nproc 4         # train on four GPUs",
    "endtask run runs/chemprot --from finetune  # redo fine-tuning and later stages",
    "endtask run --bundle chemprot.tar.zst --results chemprot.json  # made by endtask bundle on another machine",
)

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FILE", help="Unpack a bundle to --output [runs/NAME], and resume there."),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--results", metavar="FILE", help="Write scores, predictions and cost to a small JSON file."),
]


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
    bundle: BundleOption = None,
    results: ResultsOption = None,
    nproc: Annotated[
        int | None,
        typer.Option("--nproc", metavar="N", help="Train in N processes of this machine, such as one for each GPU."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what each stage would do; change nothing.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run all stages: read, retrieve, select, pack, pretrain, finetune, evaluate and model; then write the report.

    Finished stages are skipped and a stopped stage resumes, so the same command may be repeated at any time.
    """
    from endtask.api.fit import warn_about
    from endtask.pipeline.run import Run
    from endtask.pipeline.run import run as run_stages
    from endtask.reporting.page import verdict_lines

    if nproc is not None and not dry_run and not is_started_by_torchrun():
        from endtask.cli.launch import launch

        launch(nproc)
    set_quiet(quiet)
    is_first = join_processes().is_first
    if results is not None:
        from endtask.reporting.results import check_results_file

        check_results_file(results)
    if bundle is not None and is_started_by_torchrun():
        hint = f"unpack it first: endtask bundle {bundle} --unpack"
        raise InputError("several processes cannot unpack a bundle", path=bundle, hint=hint)
    if bundle is not None:
        _check_bundle_flags({"SETTINGS": settings, "--task": task, "--corpus": corpus, "--preset": preset})
        settings, output = _unpacked(bundle, output, dry_run=dry_run), None
    resolved = settings_from(
        settings, task=task, corpus=corpus, budget=budget, output=output, preset=preset, overrides=overrides
    )
    if dry_run:
        plan = Run(resolved).plan(until=until, start=start)
        print_json(dict(plan)) if as_json else print_lines(*(f"{name:10} {state}" for name, state in plan))
        return
    with recorded() as log:
        warn_about(resolved)
        result = run_stages(resolved, until=until, start=start)
        if not is_first:
            return
        log.write("\n".join(verdict_lines(result.folder)))
    if results is not None:
        from endtask.reporting.results import write_results

        write_results(results, result.folder)
    if as_json:
        print_json({"folder": str(result.folder), "stages": result.stages})
        return
    print_lines(*verdict_lines(result.folder), f"report: {result.folder / 'report.html'}")
    if results is not None:
        print_lines(f"results: {results}")
    if "model" in result.stages:
        print_lines(trial_line(result.folder))


def _check_bundle_flags(flags: Mapping[str, object]) -> None:
    """Raise `InputError` for flags of data that the bundle has; --set and --budget may change later stages."""
    for name, value in flags.items():
        if value:
            raise InputError(f"{name} does not go with --bundle, which brings its own", hint="--set changes a setting")


def _unpacked(bundle: Path, output: Path | None, *, dry_run: bool) -> Path:
    """Return the folder of the bundle's run; unpack the bundle if needed."""
    from endtask.bundle.unpack import bundle_header, default_folder, unbundle
    from endtask.io.run_layout import record_file

    header = bundle_header(bundle)
    runs = header.runs
    if len(runs) > 1:
        is_comparison = record_file("compare") in header.files
        unpack = f"endtask bundle {bundle} --unpack, and then one by one"
        names = f"{', '.join(runs[:3])}{', ...' if len(runs) > 3 else ''}"
        hint = f"endtask compare --bundle {bundle}" if is_comparison else unpack
        raise InputError(f"holds {len(runs)} runs ({names})", path=bundle, hint=hint)
    folder = output or default_folder(bundle)
    if dry_run and not folder.exists():
        raise InputError("--dry-run unpacks no bundle", path=bundle, hint=f"endtask bundle {bundle} --unpack")
    return unbundle(bundle, folder) / runs[0]
