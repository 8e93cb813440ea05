"""Redo the stages from one on: the old ones wait in `previous`, and come back if the redo is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from endtask.errors import InputError, TrainingError
from endtask.io.atomic import remove_folder, write_text
from endtask.io.run_layout import SETTINGS_FILE, STAGES, TRACKERS
from endtask.io.stage_folder import StageFolder, remove_worthless_partials

PREVIOUS = "previous"
_UNFINISHED = ".unfinished"
"""The stages of a redo that never finished, until the next redo, which needs them only to restore the folder."""


class Redo:
    """The stages of a run that are redone: those from `start` on; none without `start`."""

    def __init__(self, run: Path, stages: Mapping[str, StageFolder], start: str | None) -> None:
        self._run, self._stages = run, stages
        self.names = () if start is None else STAGES[STAGES.index(start) :]
        self._moved_trackers: Path | None = None

    def move_away(self) -> None:
        """Move the stages, and the files of the trackers that followed them, away."""
        into = {name: previous_of(self._run, name) for name in (*self.names, TRACKERS)}
        # The last stage moves first: a kill in between leaves no stage after a missing stage.
        for name in reversed(self.names):
            self._stages[name].move_into(into[name])
        if "finetune" in self.names:  # the curves of new training belong to another run of a tracker
            self._moved_trackers = _move_trackers(self._run, into[TRACKERS])

    @contextmanager
    def restored_on_input_error(self) -> Iterator[None]:
        """Restore the folder if the block raises `InputError` before the first stage is finished.

        Some errors appear only then, such as the cost of a selection. A training error leaves the stage to resume.
        """
        file = self._run / SETTINGS_FILE
        settings = file.read_text(encoding="utf-8") if self.names and file.exists() else None
        try:
            yield
        except InputError as error:
            if settings is None or isinstance(error, TrainingError):
                raise
            if not self._stages[self.names[0]].final.exists():
                self._restore(settings)
            raise

    def _restore(self, settings: str) -> None:
        for name in self.names:
            self._stages[name].move_back()
        write_text(self._run / SETTINGS_FILE, settings)
        if self._moved_trackers is not None and not (self._run / TRACKERS).exists():
            self._moved_trackers.rename(self._run / TRACKERS)
        for name in (PREVIOUS, _UNFINISHED):
            with suppress(OSError):  # it has stages of an earlier redo
                (self._run / name).rmdir()

    def finish(self) -> None:
        """Delete what redos left that never finished."""
        remove_folder(self._run / _UNFINISHED)
        remove_worthless_partials(self._run / PREVIOUS)


def previous_of(run: Path, name: str) -> Path:
    """Return the folder that a stage, or another folder of a run, moves into when it is redone.

    It is `previous`, where it replaces what an earlier redo moved there. If the stages there got further than those of
    the run, which is a redo that never finished, it is a folder that the new redo deletes at its end.
    """
    previous = run / PREVIOUS
    is_unfinished = _count_stages(run) < _count_stages(previous)
    return run / _UNFINISHED if is_unfinished and (previous / name).exists() else previous


def _count_stages(folder: Path) -> int:
    """Return the number of stages up to the last one in a folder."""
    return max((number for number, name in enumerate(STAGES, 1) if (folder / name).exists()), default=0)


def _move_trackers(run: Path, folder: Path) -> Path | None:
    """Move the trackers' files into a folder, and return their path there; None if there are none."""
    files, target = run / TRACKERS, folder / TRACKERS
    if not files.exists():
        return None
    shutil.rmtree(target, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    return files.rename(target)
