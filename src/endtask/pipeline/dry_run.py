"""Select without keeping the selection, to see what settings would give."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.atomic import disk_errors_named
from endtask.io.processes import run_lock
from endtask.io.stage_files import read_manifest
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.inputs import needs_corpus
from endtask.pipeline.run import Run, first_blocked
from endtask.pipeline.stages import STAGES

_FOLDER = ".dry_run"


def dry_run_selection(settings: Settings) -> dict[str, Any]:
    """Return the counts of a selection under these settings, and delete the selection."""
    run = Run(settings)
    run.check()
    stages = run.stage_folders()
    _check_can_select(run, stages)
    with disk_errors_named(run.folder, hint="the run is unchanged"), run_lock(run.folder):
        return _select_in_scratch(run, stages)


def _check_can_select(run: Run, stages: Mapping[str, StageFolder]) -> None:
    """Raise `InputError` if the retrieve stage is not finished, or if its files stayed on another machine.

    A selector that reads no retrieved passages accepts a retrieve stage that was made for another selector.
    """
    finished, selector = stages["retrieve"].is_finished(), run.settings.select.name
    if not finished and needs_corpus(run.settings.select):
        hint = f"retrieve first: endtask retrieve {run.folder}, with --from retrieve where other settings changed too"
        raise InputError("nothing was retrieved with these settings", path=run.folder, hint=hint)
    if read_manifest(stages["retrieve"].final) is None:
        message = f"{selector} reads no retrieved passages, and there are none to compare with"
        hint = f"leave out --dry-run: endtask select {run.folder}"
        raise InputError(message, path=run.folder, key="select.name", hint=hint)
    pending = ["select"] if finished else ["retrieve", "select"]
    blocked = first_blocked(pending, stages, run.bundled, run.settings)
    if blocked is not None:
        hint = "do it there; nothing was touched"
        raise InputError(f"the stage {blocked[0]} {blocked[1]}", path=run.folder, hint=hint)


def _select_in_scratch(run: Run, stages: Mapping[str, StageFolder]) -> dict[str, Any]:
    # The scratch folder is in the run's folder: a selection may be too large for the system's temporary files.
    folder = run.folder / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed dry run
    try:
        scratch = StageFolder(folder, "select", stages["select"].fingerprint, {}, {})
        return STAGES["select"].run(run.data, scratch, {name: stage.final for name, stage in stages.items()})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
