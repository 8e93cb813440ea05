"""`endtask verify`: compare every file of finished stages with the sizes and digests in their manifests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from endtask.config import load_settings
from endtask.errors import InputError, a_few
from endtask.io.run_layout import SETTINGS_FILE, STAGES
from endtask.io.stage_files import FILES, MANIFEST, DamagedFile, FileRecord, StageFiles, check_stage, read_manifest
from endtask.progress import Advance, bar
from endtask.reporting.format import plural, size
from endtask.reporting.run_folder import changed_settings
from endtask.reporting.run_list import run_folders

Known = dict[tuple[int, int], FileRecord]
"""The content of files by device and inode."""


@dataclass(frozen=True)
class Damage:
    """A file that is not as a stage wrote it; `redo` is the command that makes it again."""

    file: str
    problem: str
    stage: str | None = None
    redo: str | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}" + (f" ({self.redo})" if self.redo else "")


@dataclass
class Verified:
    """What was checked, and the damage that was found; stages without records were made by an older version."""

    folder: str
    runs: int = 0
    stages: int = 0
    files: int = 0
    bytes: int = 0
    damaged: list[Damage] = field(default_factory=list)
    without_records: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return a line for each damage, and what was checked."""
        counts = f"{plural(self.stages, 'stage')}, {plural(self.files, 'file')}, {size(self.bytes)}"
        if self.runs > 1:
            counts = f"{plural(self.runs, 'run')}, {counts}"
        old = [f"{stage}: made without digests, which cannot be verified" for stage in self.without_records]
        verdict = f"{len(self.damaged)} damaged" if self.damaged else "no damage"
        return [*map(str, self.damaged), *old, f"{self.folder}: {counts}: {verdict}"]


def verify(folder: Path) -> Verified:
    """Check all files of the run in a folder, or of all runs below it."""
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    runs = list(run_folders(folder))
    if not runs:
        raise InputError("no run here", path=folder, hint="give the folder that `endtask run --output` made")
    found = Verified(str(folder), runs=len(runs))
    stages = [stage for run in runs for stage in _readable_stages(run, found)]
    known: Known = {}
    total = sum(record.bytes for stage in stages for record in stage.records.values())
    with bar("verify", total, unit="B") as advance:
        for stage in stages:
            for name in stage.records:
                _check_file(stage, name, known, found, advance)
    return found


def _readable_stages(run: Path, found: Verified) -> Iterator[StageFiles]:
    """Yield the stages of a run that have records; note damaged manifests and settings."""
    previous: dict[str, Any] | None = None
    settings = _settings(run, found)
    for name in STAGES:
        folder = run / name
        if not folder.is_dir():
            continue
        found.stages += 1
        try:
            if not (folder / MANIFEST).exists():
                check_stage(folder)
            manifest = read_manifest(folder) or {}
            _check_inputs(folder, manifest, previous)
            previous = manifest
        except DamagedFile as error:
            found.damaged.append(_damage(error))
            continue
        if changes := changed_settings(settings, manifest):
            problem = f"not what the stage {name} was made with: {a_few(changes, 3)}"
            found.damaged.append(Damage(str(run / SETTINGS_FILE), problem))
        if FILES not in manifest:
            found.without_records.append(str(folder))
        yield StageFiles(folder, manifest)


def _check_inputs(folder: Path, manifest: dict[str, Any], previous: dict[str, Any] | None) -> None:
    """Raise `DamagedFile` for a stage that was made from another stage than the one before it."""
    before = None if previous is None else previous.get("stage")
    made_from = manifest.get("inputs", {}).get(before)
    if previous is not None and made_from not in (None, previous["fingerprint"]):
        raise DamagedFile(folder / MANIFEST, f"made from another {before} than the one here", folder)


def _settings(run: Path, found: Verified) -> dict[str, Any]:
    """Return the settings of a run; note a file that cannot be read."""
    try:
        return load_settings(run / SETTINGS_FILE).model_dump(mode="json")
    except InputError as error:
        found.damaged.append(Damage(str(run / SETTINGS_FILE), error.message))
        return {}


def _check_file(stage: StageFiles, name: str, known: Known, found: Verified, advance: Advance) -> None:
    """Check a file; one with several hard links is read once."""
    path = stage.folder / name
    found.files += 1
    try:
        status = path.stat()
        key = (status.st_dev, status.st_ino)
        record = stage.records[name]
        if known.get(key) == record:
            advance(record.bytes)
            return
        stage.check_file(name, digests_up_to=math.inf, advance=advance)
        known[key] = record
        found.bytes += status.st_size
    except FileNotFoundError:
        found.damaged.append(_damage(DamagedFile(path, "missing", stage.folder)))
    except DamagedFile as error:
        found.damaged.append(_damage(error))


def _damage(error: DamagedFile) -> Damage:
    return Damage(str(error.path), error.message, error.stage.name, error.hint)
