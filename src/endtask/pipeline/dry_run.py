"""What a selector would keep of a run's retrieved passages, without a change to the run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.atomic import disk_trouble
from endtask.io.lock import run_lock
from endtask.io.stage_folder import StageFolder, read_manifest
from endtask.pipeline.external_inputs import needs_corpus
from endtask.pipeline.missing_inputs import first_missing
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES

_ASIDE = ".preview"


def dry_run_selection(settings: Settings) -> dict[str, Any]:
    """The counts of the select stage under these settings; the selection itself is thrown away."""
    run = Run(settings)
    run.check()
    stages = run.stage_folders()
    _check_possible(run, stages)
    try:
        with run_lock(run.folder):
            return _select_aside(run, stages)
    except Exception as error:
        trouble = disk_trouble(error)
        if trouble is None:
            raise
        raise InputError(trouble, path=run.folder, hint="the run is as it was") from None


def _check_possible(run: Run, stages: Mapping[str, StageFolder]) -> None:
    """Refuse a preview without a retrieve stage to go by, or whose files stayed on another machine.

    Selectors that read nothing retrieved may go by a stage that was made for another selector.
    """
    finished, selector = stages["retrieve"].is_finished(), run.settings.select.name
    if not finished and needs_corpus(run.settings.select):
        hint = f"retrieve first: endtask retrieve {run.folder}, with --from retrieve where other settings changed too"
        raise InputError("nothing was retrieved with these settings", path=run.folder, hint=hint)
    if read_manifest(stages["retrieve"].final) is None:
        message = f"{selector} reads nothing retrieved, and nothing was retrieved that it could be compared with"
        hint = f"leave out --dry-run: endtask select {run.folder}"
        raise InputError(message, path=run.folder, key="select.name", hint=hint)
    to_do = ["select"] if finished else ["retrieve", "select"]
    missing = first_missing(to_do, stages, run.bundled, run.settings)
    if missing is not None:
        hint = "do it there; nothing was touched"
        raise InputError(f"the stage {missing[0]} {missing[1]}", path=run.folder, hint=hint)


def _select_aside(run: Run, stages: Mapping[str, StageFolder]) -> dict[str, Any]:
    # Beside the other stages, since a selection may be too large for the system's folder of temporary files.
    folder = run.folder / _ASIDE
    shutil.rmtree(folder, ignore_errors=True)  # a killed preview's
    try:
        aside = StageFolder(folder, "select", stages["select"].fingerprint, {}, {})
        return STAGES["select"].run(run.data, aside, {name: stage.final for name, stage in stages.items()})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
