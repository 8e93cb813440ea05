"""Finished stages at the address `cluster.storage`: a run uploads them, and one on another machine goes on after them.

The manifest of a stage is uploaded after its files and removed before they are replaced: a reader never takes half a
stage for a finished one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.corpus.cloud import copy_bytes, download, file_system
from endtask.errors import InputError
from endtask.io.addresses import redacted
from endtask.io.parsing import ParseError
from endtask.io.stage_files import FILES, MANIFEST, DamagedFile, FileRecord, StageFiles, check_stage, parse_manifest
from endtask.io.stage_folder import StageFolder
from endtask.progress import Advance, bar, say

_KEY = "cluster.storage"
Tree = dict[str, Any]


class Storage:
    """The stages of a run at an address; without an address there are none, and nothing is uploaded."""

    def __init__(self, address: str | None, stages: Mapping[str, StageFolder]) -> None:
        """Read the manifests of all stages that are not redone.

        Raise `InputError` for one that is damaged, or that was made with other settings or data.
        """
        self._address = address.rstrip("/") if address else None
        self._stages = stages
        read = [stage for stage in stages.values() if self._address and not stage.is_redone]
        self._found = {stage.name: manifest for stage in read if (manifest := self._manifest(stage)) is not None}

    def fetchable(self, names: Iterable[str]) -> list[str]:
        """Return the stages that are not here but at the address, up to the first one that has to be made here."""
        missing = [name for name in names if not self._stages[name].is_finished()]
        return list(takewhile(lambda name: name in self._found and not self._stages[name].has_progress(), missing))

    def begin(self, settings: Path) -> None:
        """Upload the file of settings, which shows that the address can be written, and forget stages to be redone."""
        self.put(settings)
        for stage in reversed(list(self._stages.values())):
            if self._address and stage.is_redone and self._read(f"{stage.name}/{MANIFEST}") is not None:
                with file_system(self._at(stage.name, MANIFEST)) as (system, path):
                    system.rm_file(path)

    def fetch(self, stage: StageFolder) -> None:
        """Download a stage and compare every file with the record in its manifest."""
        manifest, partial, address = self._found[stage.name], stage.empty_partial(), self._at(stage.name)
        records = StageFiles(partial, manifest).records
        with bar(f"download {redacted(address)}", _bytes(records), unit="B") as advance:
            for name in records:
                self._get(f"{stage.name}/{name}", partial / name, advance)
        try:
            stage.adopt(manifest)
        except DamagedFile as error:
            name = Path(str(error.path)).relative_to(partial).as_posix()
            raise self._damaged(f"{stage.name}/{name}", error.problem) from None
        say(f"{stage.name}: fetched from {redacted(address)}")

    def upload(self, stage: StageFolder) -> None:
        """Upload the files of a finished stage and then its manifest, unless they are there."""
        if self._address is None or stage.name in self._found or self._manifest(stage) is not None:
            return
        check_stage(stage.final, digests_up_to=math.inf)
        records = StageFiles.of(stage.final).records
        with bar(f"upload to {redacted(self._at(stage.name))}", _bytes(records), unit="B") as advance:
            for name in (*records, MANIFEST):
                self._put(stage.final / name, f"{stage.name}/{name}", advance)

    def put(self, file: Path) -> None:
        """Upload a file of the run's folder."""
        if self._address is not None:
            self._put(file, file.name, lambda amount: None)

    def _at(self, *names: str) -> str:
        return "/".join((self._address or "", *names))

    def _manifest(self, stage: StageFolder) -> Tree | None:
        """Return the manifest of a stage at the address; None if the stage is not there."""
        name = f"{stage.name}/{MANIFEST}"
        content = self._read(name)
        if content is None:
            return None
        try:
            manifest = _of_finished_stage(content)
        except ParseError as error:
            raise self._damaged(name, str(error)) from None
        if manifest["fingerprint"] != stage.fingerprint:
            raise InputError(
                f"the stage {stage.name} there was made with other settings or data",
                path=redacted(self._at()),
                key=_KEY,
                hint=f"--from {stage.name} replaces it, another address leaves it there; nothing was touched",
            )
        return manifest

    def _read(self, name: str) -> bytes | None:
        with file_system(self._at(name)) as (system, path):
            try:
                content: bytes = system.cat_file(path)
            except FileNotFoundError:
                return None
        return content

    def _put(self, source: Path, name: str, advance: Advance) -> None:
        with open(source, "rb") as content, file_system(self._at(name)) as (system, path):
            if hasattr(system, "auto_mkdir"):  # of a disk; object stores have no folders
                system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with system.open(path, "wb") as target:
                copy_bytes(content, target, advance)

    def _get(self, name: str, target: Path, advance: Advance) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_system(self._at(name)) as (system, path):
            try:
                download(system, path, target, advance)
            except FileNotFoundError:
                raise self._damaged(name, "missing") from None

    def _damaged(self, name: str, problem: str) -> InputError:
        hint = f"--from {name.partition('/')[0]} makes it again"
        return InputError(f"damaged: {problem}", path=redacted(self._at(name)), key=_KEY, hint=hint)


def _of_finished_stage(content: bytes) -> Tree:
    """Return a manifest with records of files, all of them inside the stage's folder; anyone may have written it."""
    manifest = parse_manifest(content)
    paths = [PurePosixPath(name) for name in manifest.get(FILES, ())]
    if FILES not in manifest or manifest["status"] != "finished":
        raise ParseError("not the manifest of a finished stage")
    if any(path.is_absolute() or ".." in path.parts for path in paths):
        raise ParseError("names a file outside of the stage's folder")
    return manifest


def _bytes(records: Mapping[str, FileRecord]) -> int:
    return sum(record.bytes for record in records.values())
