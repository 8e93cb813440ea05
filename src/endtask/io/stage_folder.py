"""A stage's folder and its manifest: what was asked, what went in, what came out, what it cost.

A stage works in `<stage>.partial/`, whose manifest says `running`; the folder is renamed to `<stage>/` once the
manifest says `finished`. The fingerprint covers the settings the stage reads and the fingerprints of the stages
before it, so a matching finished stage is skipped and a matching partial one goes on where it stopped.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.io import gpu_memory
from endtask.io.atomic import remove_leftovers, replace_folder, write_json
from endtask.io.energy import EnergyMeter
from endtask.io.machine import describe_machine
from endtask.io.nested import changes_in_words, differences, flatten

MANIFEST = "manifest.json"
LEFT_OUT = "left_out"
"""Key of a manifest whose stage was done on another machine: the files that stayed there."""
_VERSIONED = ("torch", "transformers", "tokenizers", "numba", "numpy", "pyarrow")


def own_version() -> str:
    """The version of this package; of a source tree that is on the path but not installed nobody knows it."""
    try:
        return metadata.version("endtask")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of the libraries that decide results."""
    found = {"python": platform.python_version(), "endtask": own_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in a folder, or None where there is none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or not {"fingerprint", "status"} <= manifest.keys():
            raise ValueError
        if not isinstance(manifest.get(LEFT_OUT, []), list):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError("not a manifest", path=path, hint="was the file changed by hand?") from None
    return manifest


def left_out(folder: Path) -> list[str]:
    """The files of a finished stage that a bundle left behind."""
    return list((read_manifest(folder) or {}).get(LEFT_OUT, ()))


class StageFolder:
    """One stage of one run."""

    def __init__(
        self, run: Path, name: str, fingerprint: str, settings: dict[str, Any], inputs: dict[str, str]
    ) -> None:
        self.name = name
        self.final = run / name
        self.partial = run / f"{name}.partial"
        self.fingerprint = fingerprint
        self._head: dict[str, Any] = {"stage": name, "fingerprint": fingerprint, "settings": settings, "inputs": inputs}
        self._started = time.monotonic()
        self._energy = EnergyMeter({})
        self._joules_before: dict[str, float] = {}
        self._manifest: dict[str, Any] = {}
        self._aside: dict[Path, Path] = {}
        self._goes_on = False

    def recover(self) -> None:
        """Do the rename that a kill left undone; call it only where no other process works on the run."""
        manifest = read_manifest(self.partial)
        if manifest is not None and manifest["status"] == "finished":
            replace_folder(self.partial, self.final)

    def is_finished(self) -> bool:
        """Whether the stage stands finished with these very settings and inputs."""
        manifest = read_manifest(self.final)
        return manifest is not None and manifest["fingerprint"] == self.fingerprint

    def can_resume(self) -> bool:
        """Whether a killed run left work with these very settings and inputs."""
        manifest = read_manifest(self.partial)
        return manifest is not None and manifest["fingerprint"] == self.fingerprint

    def clashes(self) -> bool:
        """Whether work worth keeping stands here that was made with other settings or inputs.

        Unfinished work is worth keeping once decisions were taken: only stages that plan can go on half-way.
        """
        if self.final.exists():
            return not self.is_finished()
        manifest = read_manifest(self.partial)
        return manifest is not None and bool(manifest["plan"]) and not self.can_resume()

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """What differs from the manifest that stands here: settings and inputs by dotted key, as (old, new)."""
        manifest = self._standing()
        parts = [differences(manifest.get(part, {}), self._head[part]) for part in ("settings", "inputs")]
        return parts[0] | parts[1]

    def changed_settings(self) -> list[str]:
        """The settings among them, each as `key (old -> new)`.

        Those of a part that had none before, or has none now, are left out where there are others: whoever chose
        another selector did not set them.
        """
        old, new = self._standing().get("settings", {}), self._head["settings"]
        before, after = flatten(old), flatten(new)
        in_both = [{key: tree[key] for key in after if key in before} for tree in (before, after)]
        return changes_in_words(*in_both) or changes_in_words(old, new)

    def _standing(self) -> dict[str, Any]:
        """The manifest that stands here, of a finished stage or of one that was begun."""
        return read_manifest(self.final) or read_manifest(self.partial) or {}

    def set_aside(self, folder: Path) -> None:
        """Move the stage into `folder`, so that it is made anew but not lost; what was begun too, unless it goes on."""
        begun = () if self.can_resume() else (self.partial,)
        for path in (self.final, *begun):
            if path.exists():
                folder.mkdir(exist_ok=True)
                kept = folder / path.name
                if kept.exists():
                    shutil.rmtree(kept)
                path.rename(kept)
                self._aside[path] = kept
        self._goes_on = not begun

    def put_back(self) -> None:
        """Undo `set_aside`, and what was begun since."""
        if not self._goes_on:
            self._discard_partial()
        for path, kept in self._aside.items():
            kept.rename(path)
        self._aside.clear()

    def start(self) -> Path:
        """Open the working folder: the one a killed run left, if it matches, else an empty one."""
        manifest = read_manifest(self.partial)
        if manifest is None or manifest["fingerprint"] != self.fingerprint:
            self._discard_partial()
            self.partial.mkdir(parents=True)
            made_with = {"versions": versions(), "machine": describe_machine()}
            manifest = {**self._head, "status": "running", **made_with, "plan": {}, "seconds": 0.0}
        remove_leftovers(self.partial)
        self._manifest = manifest
        self._started = time.monotonic() - float(manifest["seconds"])
        self._energy, self._joules_before = EnergyMeter.start(), manifest.get("joules", {})
        gpu_memory.forget_peak()
        self._write()
        return self.partial

    @property
    def plan(self) -> dict[str, Any]:
        """Decisions taken once before the work and kept on resume, such as the step count."""
        plan: dict[str, Any] = self._manifest["plan"]
        return plan

    def set_plan(self, **decisions: Any) -> None:
        """Write decisions to the manifest before acting on them."""
        self.plan.update(decisions)
        self._write()

    def keep_time(self) -> None:
        """Record the seconds and joules spent so far, so that a resumed stage counts them too."""
        self._write()

    def finish(self, counts: dict[str, Any]) -> float:
        """Complete the manifest and move the folder into place; returns the seconds spent on the stage."""
        self._manifest.update(
            status="finished", counts=counts, finished=datetime.now(UTC).isoformat(timespec="seconds")
        )
        self._write()
        replace_folder(self.partial, self.final)
        return float(self._manifest["seconds"])

    def _write(self) -> None:
        self._manifest["seconds"] = round(time.monotonic() - self._started, 3)
        # Of the whole machine, where it can be read; a stage cannot tell its own from others'.
        used, before = self._energy.joules(), self._joules_before
        self._manifest["joules"] = {name: round(before.get(name, 0.0) + used[name], 1) for name in used}
        if peak := max(self._manifest.get("gpu_bytes", 0), gpu_memory.peak_bytes()):
            self._manifest["gpu_bytes"] = peak
        write_json(self.partial / MANIFEST, self._manifest)

    def _discard_partial(self) -> None:
        if self.partial.exists():
            # The manifest first, so that what a kill leaves half deleted never passes for work to go on with.
            (self.partial / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(self.partial)
