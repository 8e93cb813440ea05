"""What a selector would keep of a run's retrieved passages, without a change to the run."""

from __future__ import annotations

import shutil
from typing import Any

from endtask.errors import InputError
from endtask.files.lock import run_lock
from endtask.files.stage_folder import StageFolder
from endtask.run import Run
from endtask.settings import Settings
from endtask.stages import WORK

_ASIDE = ".preview"


def preview_selection(settings: Settings) -> dict[str, Any]:
    """The counts of the select stage under these settings; the selection itself is thrown away."""
    run = Run(settings)
    run.check()
    stages = run.stage_folders()
    if not stages["retrieve"].is_finished():
        hint = f"retrieve first: endtask retrieve {run.folder}, with --from retrieve where other settings changed too"
        raise InputError("nothing was retrieved with these settings", path=run.folder, hint=hint)
    # Beside the other stages, since a selection may be too large for the system's folder of temporary files.
    folder = run.folder / _ASIDE
    with run_lock(run.folder):
        shutil.rmtree(folder, ignore_errors=True)  # a killed preview's
        try:
            aside = StageFolder(folder, "select", stages["select"].fingerprint, {}, {})
            return WORK["select"](run.data, aside, {name: stage.final for name, stage in stages.items()})
        finally:
            shutil.rmtree(folder, ignore_errors=True)
