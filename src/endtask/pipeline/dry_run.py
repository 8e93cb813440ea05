"""Run a selector over the retrieved passages of a run without changing the run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.atomic import disk_error
from endtask.io.processes import run_lock
from endtask.io.stage_folder import StageFolder, read_manifest
from endtask.pipeline.bundled_inputs import first_missing
from endtask.pipeline.external_inputs import needs_corpus
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES

_SCRATCH = ".dry_run"


def dry_run_selection(settings: Settings) -> dict[str, Any]:
    """Return the counts of the select stage under these settings; the selection itself is deleted."""
    run = Run(settings)
    run.check()
    stages = run.stage_folders()
    _check_possible(run, stages)
    try:
        with run_lock(run.folder):
            return _select_in_scratch(run, stages)
    except Exception as error:
        trouble = disk_error(error)
        if trouble is None:
            raise
        raise InputError(trouble, path=run.folder, hint="the run is unchanged") from None


def _check_possible(run: Run, stages: Mapping[str, StageFolder]) -> None:
    """Raise `InputError` without a finished retrieve stage, or where its files stayed on another machine.

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
    to_do = ["select"] if finished else ["retrieve", "select"]
    missing = first_missing(to_do, stages, run.bundled, run.settings)
    if missing is not None:
        hint = "do it there; nothing was touched"
        raise InputError(f"the stage {missing[0]} {missing[1]}", path=run.folder, hint=hint)


def _select_in_scratch(run: Run, stages: Mapping[str, StageFolder]) -> dict[str, Any]:
    # In the run's folder, since a selection may be too large for the system's folder of temporary files.
    folder = run.folder / _SCRATCH
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed dry run
    try:
        scratch = StageFolder(folder, "select", stages["select"].fingerprint, {}, {})
        return STAGES["select"].run(run.data, scratch, {name: stage.final for name, stage in stages.items()})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
