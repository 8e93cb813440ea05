"""Read the files of a run's folder for the report; any stage may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from endtask.config import read_tree
from endtask.errors import InputError, a_few
from endtask.io.nested import changes_in_words, flatten
from endtask.io.run_layout import (
    ANALYSIS,
    AUDIT,
    CALIBRATION,
    LATENCY,
    PREDICTIONS,
    RESULTS,
    SELECTION,
    SETTINGS_FILE,
    STAGES,
    TASKS,
)
from endtask.io.selection_table import read_selection
from endtask.io.stage_files import LEFT_OUT, MANIFEST, DamagedFile, StageFiles, read_manifest
from endtask.io.tables import read_rows
from endtask.records import Selected

Tree = dict[str, Any]
Row = dict[str, Any]


class RunFolder:
    """The finished stages of a run. Raises `InputError` for a folder without a run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.manifests: dict[str, Tree] = {}
        for stage in STAGES:
            manifest = _stored_manifest(folder / stage)
            if manifest is not None:
                self.manifests[stage] = _check_keys(manifest, folder / stage / MANIFEST)
        if not self.manifests and not (folder / SETTINGS_FILE).exists():
            message = "no run here" if folder.is_dir() else "no such folder"
            raise InputError(message, path=folder, hint="give the folder that `endtask run --output` made")

    def file(self, stage: str, *names: str) -> Path:
        """Return the path of a stage's file; raise `DamagedFile` if it is not as the stage wrote it."""
        folder = self.path / stage
        StageFiles(folder, self.manifests.get(stage, {})).check_file("/".join(names))
        return folder.joinpath(*names)

    def check_settings(self) -> None:
        """Raise `InputError` if the file of settings is not that of the finished stages."""
        for stage, manifest in self.manifests.items():
            if changes := changed_settings(self.settings, manifest):
                message = f"not what the stage {stage} was made with: {a_few(changes, 3)}"
                hint = f"undo the change, or redo the stage: endtask run {self.path} --from {stage}"
                raise InputError(message, path=self.path / SETTINGS_FILE, hint=hint)

    @property
    def missing(self) -> list[str]:
        """Stages that have not finished, in order."""
        return [stage for stage in STAGES if stage not in self.manifests]

    @property
    def started(self) -> list[str]:
        """Stages that have started but not finished."""
        return [stage for stage in self.missing if (self.path / f"{stage}.partial").exists()]

    @property
    def has_selection(self) -> bool:
        """Whether the folder contains the selected texts; a bundle of tokens does not."""
        return "select" in self.manifests and LEFT_OUT not in self.manifests["select"]

    def counts(self, stage: str) -> Tree:
        """Return the counts of a finished stage; empty if it has not finished."""
        counts: Tree = self.manifests.get(stage, {}).get("counts", {})
        return counts

    @cached_property
    def settings(self) -> Tree:
        """The resolved settings."""
        return _read_tree(self.path / SETTINGS_FILE) or {}

    @cached_property
    def settings_text(self) -> str:
        """The text of the settings file."""
        path = self.path / SETTINGS_FILE
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @cached_property
    def audit(self) -> Tree | None:
        """The audit of the task's data."""
        return _read_tree(self.file("read", AUDIT))

    @property
    def auxiliary_audits(self) -> dict[str, Tree]:
        """The audits of the auxiliary tasks, by name."""
        names = [file.parent.name for file in sorted((self.path / "read" / TASKS).glob(f"*/{AUDIT}"))]
        return {name: read_tree(self.file("read", TASKS, name, AUDIT)) for name in names}

    @cached_property
    def results(self) -> Tree | None:
        """The scores of every seed."""
        return _read_tree(self.file("evaluate", RESULTS))

    @cached_property
    def calibration(self) -> Tree | None:
        """The temperatures of the seeds and the calibration with and without them."""
        return _read_tree(self.file("evaluate", CALIBRATION))

    @property
    def latency(self) -> Tree | None:
        """The latency of the model for one text, if it was measured."""
        return _read_tree(self.path / LATENCY)

    @property
    def analysis(self) -> Tree | None:
        """Attention heads and maps of sentence vectors, if `endtask analyze` made them."""
        return _read_tree(self.path / ANALYSIS)

    @property
    def task_name(self) -> str:
        """The task's name in the audit, else the last part of its path."""
        if self.audit is not None:
            return str(self.audit["name"])
        return Path(str(self.settings.get("task", {}).get("path") or self.path)).name

    def selected(self) -> Iterator[Selected]:
        """Stream the selected passages."""
        path = self.file("select", SELECTION) if self.has_selection else self.path / "select" / SELECTION
        return read_selection(path) if path.exists() else iter(())

    def examples(self, split: str, auxiliary: str | None = None) -> Iterator[Row]:
        """Stream the rows of a split of the task or of an auxiliary task, as the read stage stored them."""
        folders = () if auxiliary is None else (TASKS, auxiliary)
        return _rows(self.file("read", *folders, f"{split}.jsonl"))

    def predictions(self) -> Iterator[Row]:
        """Stream id, true label and each seed's prediction for the evaluated split."""
        return _rows(self.file("evaluate", PREDICTIONS))

    def curves(self, *folders: str) -> list[Row]:
        """Return the rows of a metrics file, given the stage's folder and, if there are several, the seed's."""
        return list(_rows(self.file(*folders, "metrics.jsonl")))


def _read_tree(path: Path) -> Tree | None:
    return read_tree(path) if path.exists() else None


def changed_settings(settings: Tree, manifest: Tree) -> list[str]:
    """Return the settings of a run that are not those of a finished stage, each as `key (old -> new)`."""
    now, made_with = flatten(settings), flatten(manifest.get("settings", {}))
    in_both = [key for key in made_with if key in now]  # another version may have other settings
    return changes_in_words({key: made_with[key] for key in in_both}, {key: now[key] for key in in_both})


def _stored_manifest(folder: Path) -> Tree | None:
    manifest = read_manifest(folder)
    if manifest is None and folder.is_dir():
        raise DamagedFile(folder / MANIFEST, "missing", folder)
    return manifest


def _check_keys(manifest: Tree, path: Path) -> Tree:
    for key in ("fingerprint", "seconds", "counts", "versions"):
        if key not in manifest:
            raise InputError("missing from the manifest", path=path, key=key, hint="was the file changed by hand?")
    return manifest


def _rows(path: Path) -> Iterator[Row]:
    if path.exists():
        yield from (row for _, row in read_rows(path))
