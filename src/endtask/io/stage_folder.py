"""A stage's folder and its manifest: settings, inputs, counts and cost.

A stage writes to `<stage>.partial/` with status `running` in its manifest. When the status is `finished`, the folder
is renamed to `<stage>/`. The fingerprint covers the settings that the stage reads and the fingerprints of its inputs:
a run skips a finished stage that matches and resumes a partial stage that matches.
"""

from __future__ import annotations

import math
import platform
import shutil
import time
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io.atomic import remove_leftovers, replace_folder
from endtask.io.machine import EnergyMeter, describe_machine, peak_gpu_memory, reset_peak_gpu_memory
from endtask.io.nested import changes_in_words, differences, flatten
from endtask.io.stage_files import (
    LEFT_OUT,
    MANIFEST,
    PARTIAL,
    DamagedFile,
    StageFiles,
    read_manifest,
    record_files,
    write_manifest,
)

_VERSIONED = ("torch", "transformers", "tokenizers", "numba", "numpy", "pyarrow")


def package_version() -> str:
    """Return the version of this package, or `0+unknown` for a source tree that is not installed."""
    try:
        return metadata.version("endtask")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the libraries that influence results."""
    return {"python": platform.python_version(), "endtask": package_version(), **_library_versions()}


@cache
def _library_versions() -> dict[str, str]:
    installed = {}
    for name in _VERSIONED:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def left_out(folder: Path) -> list[str]:
    """Return the files of a finished stage that a bundle left out."""
    return list((read_manifest(folder) or {}).get(LEFT_OUT, ()))


def remove_worthless_partials(folder: Path) -> None:
    """Delete the partial stages in a folder that have no plan: none of their work can be continued."""
    for partial in folder.glob(f"*{PARTIAL}"):
        try:
            plan = (read_manifest(partial) or {}).get("plan")
        except DamagedFile:
            plan = None
        if not plan:
            shutil.rmtree(partial)


class StageFolder:
    """The folder of one stage of a run."""

    def __init__(
        self, run: Path, name: str, fingerprint: str, settings: dict[str, Any], inputs: dict[str, str]
    ) -> None:
        self.name = name
        self.final = run / name
        self.partial = run / f"{name}{PARTIAL}"
        self.fingerprint = fingerprint
        self._head: dict[str, Any] = {"stage": name, "fingerprint": fingerprint, "settings": settings, "inputs": inputs}
        self._started = time.monotonic()
        self._energy = EnergyMeter({})
        self._joules_before: dict[str, float] = {}
        self._manifest: dict[str, Any] = {}
        self._moved: dict[Path, Path] = {}
        self._resumes = False
        self._writes = True
        self.is_redone = False
        """Whether the stage is made again: damage of the old one does not matter then."""

    def recover(self) -> None:
        """Complete a rename that a kill interrupted; the caller holds the lock of the run."""
        manifest = self._read(self.partial)
        if manifest is not None and manifest["status"] == "finished":
            replace_folder(self.partial, self.final)

    def _read(self, folder: Path) -> dict[str, Any] | None:
        """Return the manifest in a folder of the stage; None if a stage that is redone has a damaged one."""
        try:
            if folder == self.final and folder.is_dir() and not (folder / MANIFEST).exists():
                raise DamagedFile(folder / MANIFEST, "missing", folder)
            return read_manifest(folder)
        except DamagedFile:
            if self.is_redone:
                return None
            raise

    def is_finished(self) -> bool:
        """Return whether the stage is finished with the same settings and inputs."""
        manifest = self._read(self.final)
        return manifest is not None and manifest["fingerprint"] == self.fingerprint

    def can_resume(self) -> bool:
        """Return whether a killed run left a partial stage with the same settings and inputs."""
        manifest = self._read(self.partial)
        return manifest is not None and manifest["fingerprint"] == self.fingerprint

    def has_progress(self) -> bool:
        """Return whether a killed run left results that this one goes on from: only stages with a plan can."""
        manifest = self._read(self.partial)
        return manifest is not None and manifest["fingerprint"] == self.fingerprint and bool(manifest["plan"])

    def clashes(self) -> bool:
        """Return whether the stage would overwrite results of other settings or inputs.

        Partial results count only if the stage has a plan: stages without a plan cannot resume.
        """
        if self.final.exists():
            return not self.is_finished()
        manifest = self._read(self.partial)
        return manifest is not None and bool(manifest["plan"]) and not self.can_resume()

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Return (old, new) of each setting and input that differs from the existing manifest, by dotted key."""
        manifest = self._existing_manifest()
        parts = [differences(manifest.get(part, {}), self._head[part]) for part in ("settings", "inputs")]
        return parts[0] | parts[1]

    def changed_settings(self) -> list[str]:
        """Return the changed settings, each as `key (old -> new)`.

        Keys that only one side has are left out if other keys changed: a user who changed the selector did not set
        its options.
        """
        old, new = self._existing_manifest().get("settings", {}), self._head["settings"]
        before, after = flatten(old), flatten(new)
        in_both = [{key: tree[key] for key in after if key in before} for tree in (before, after)]
        return changes_in_words(*in_both) or changes_in_words(old, new)

    def _existing_manifest(self) -> dict[str, Any]:
        """Return the manifest of the finished or the partial stage in the folder."""
        return self._read(self.final) or self._read(self.partial) or {}

    def empty_partial(self) -> Path:
        """Return the partial folder, without what a killed run left there."""
        self._discard_partial()
        self.partial.mkdir(parents=True)
        return self.partial

    def adopt(self, manifest: dict[str, Any]) -> None:
        """Finish the stage with the manifest and the files, now in the partial folder, of another machine.

        Raise `DamagedFile` for a file that is not as recorded.
        """
        StageFiles(self.partial, manifest).check(digests_up_to=math.inf)
        write_manifest(self.partial, manifest)
        replace_folder(self.partial, self.final)

    def move_into(self, folder: Path) -> None:
        """Move the finished stage into `folder`, and the partial stage unless it can resume."""
        partial = () if self.can_resume() else (self.partial,)
        for path in (self.final, *partial):
            if path.exists():
                folder.mkdir(exist_ok=True)
                target = folder / path.name
                if target.exists():
                    shutil.rmtree(target)
                path.rename(target)
                self._moved[path] = target
        self._resumes = not partial

    def move_back(self) -> None:
        """Undo `move_into`; discard a partial stage that was written after it."""
        if not self._resumes:
            self._discard_partial()
        for path, target in self._moved.items():
            target.rename(path)
        self._moved.clear()

    def start(self) -> Path:
        """Return the partial folder: that of a killed run if its fingerprint matches, else an empty folder."""
        manifest = self._read(self.partial)
        if manifest is None or manifest["fingerprint"] != self.fingerprint:
            self.empty_partial()
            made_with = {"versions": versions(), "machine": describe_machine()}
            manifest = {**self._head, "status": "running", **made_with, "plan": {}, "seconds": 0.0}
        remove_leftovers(self.partial)
        self._manifest = manifest
        self._started = time.monotonic() - float(manifest["seconds"])
        self._energy, self._joules_before = EnergyMeter.start(), manifest.get("joules", {})
        reset_peak_gpu_memory()
        self._write()
        return self.partial

    def follow(self) -> Path:
        """Return the partial folder that another process started, with its plan; this process writes no manifest."""
        manifest = read_manifest(self.partial)
        if manifest is None or manifest["fingerprint"] != self.fingerprint:
            hint = "put the run on a disk that all machines share"
            raise InputError("the folder of the first process is not here", path=self.partial, hint=hint)
        self._manifest, self._writes = manifest, False
        self._started = time.monotonic() - float(manifest["seconds"])
        return self.partial

    @property
    def plan(self) -> dict[str, Any]:
        """Decisions made once, before the stage runs, such as the step count; a resumed stage reuses them."""
        plan: dict[str, Any] = self._manifest["plan"]
        return plan

    def set_plan(self, **decisions: Any) -> None:
        """Write decisions to the manifest before acting on them."""
        self.plan.update(decisions)
        self._write()

    @property
    def seconds(self) -> float:
        """The seconds that the stage has used so far, those before a resume included."""
        return time.monotonic() - self._started

    def save_time(self) -> None:
        """Record the seconds and joules used so far, so that a resumed stage counts them too."""
        self._write()

    def finish(self, counts: dict[str, Any]) -> float:
        """Complete the manifest and rename the folder. Return the seconds that the stage took."""
        self._manifest.update(status="finished", counts=counts, files=record_files(self.partial))
        self._manifest["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._write()
        replace_folder(self.partial, self.final)
        return float(self._manifest["seconds"])

    def _write(self) -> None:
        if not self._writes:
            return
        self._manifest["seconds"] = round(time.monotonic() - self._started, 3)
        # The machine's energy, where it can be read, includes that of other processes.
        used, before = self._energy.joules(), self._joules_before
        self._manifest["joules"] = {name: round(before.get(name, 0.0) + used[name], 1) for name in used}
        if peak := max(self._manifest.get("gpu_bytes", 0), peak_gpu_memory()):
            self._manifest["gpu_bytes"] = peak
        write_manifest(self.partial, self._manifest)

    def _discard_partial(self) -> None:
        if self.partial.exists():
            # Delete the manifest first, so that a half deleted folder never looks resumable.
            (self.partial / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(self.partial)
