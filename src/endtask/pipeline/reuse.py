"""Reuse finished stages of other runs whose settings and data agree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from endtask.config import Settings, dump_yaml
from endtask.io.atomic import link_or_copy, replace_folder, write_json, write_text
from endtask.io.lock import run_lock
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import MANIFEST, StageFolder, read_manifest
from endtask.pipeline.external_inputs import reads_corpus
from endtask.pipeline.run import Run

REUSED_FROM = "reused_from"
"""Key of a manifest whose stage another run made: the relative path of that run."""


def reuse_stages(target: Run, sources: Sequence[Path]) -> dict[str, Path]:
    """Link finished stages of the run folders `sources` into `target`; returns the source of each linked stage.

    Stages are compared by fingerprint, from the first stage up to the first that no source has. Stages of `target`
    are not replaced. Files are hard links where the disk allows it: nothing writes to a finished stage again.
    """
    linked: dict[str, Path] = {}
    if not _is_empty_or_run(target.folder):
        return linked  # the run itself reports what is wrong with its folder
    stages = target.stage_folders()
    target.folder.mkdir(parents=True, exist_ok=True)
    with run_lock(target.folder):
        if not (target.folder / SETTINGS_FILE).exists():
            write_text(target.folder / SETTINGS_FILE, dump_yaml(target.settings))
        for name, stage in stages.items():
            stage.recover()
            if stage.is_finished():
                continue
            source = next((folder for folder in sources if _holds(folder / name, stage)), None)
            if source is None or stage.clashes() or stage.can_resume():
                break
            _link(source, stage)
            linked[name] = source
    return linked


def share_inputs(source: Run, target: Run) -> None:
    """Give `target` the task and corpus that `source` has read, where both read the same."""
    if all(getattr(target.settings, key) == getattr(source.settings, key) for key in ("task", "tasks", "seed")):
        target.task = source.task
    if _corpus_read(target.settings) == _corpus_read(source.settings):
        target.corpus = source.corpus


def _corpus_read(settings: Settings) -> tuple[object, ...]:
    """Return the settings that decide which corpus a run reads, if any."""
    return settings.corpus, settings.select, reads_corpus(settings)


def is_reused(stage: Path) -> bool:
    """Return whether another run made the stage in this folder."""
    return REUSED_FROM in (read_manifest(stage) or {})


def _is_empty_or_run(folder: Path) -> bool:
    if not folder.is_dir():
        return not folder.exists()
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    return not names or SETTINGS_FILE in names


def _holds(folder: Path, stage: StageFolder) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and manifest["fingerprint"] == stage.fingerprint


def _link(source: Path, stage: StageFolder) -> None:
    """Link the files of a stage; the manifest comes last, so that a kill leaves no stage that looks finished."""
    made = source / stage.name
    if stage.partial.exists():
        shutil.rmtree(stage.partial)
    for entry in sorted(made.rglob("*")):
        path = stage.partial / entry.relative_to(made)
        (path if entry.is_dir() else path.parent).mkdir(parents=True, exist_ok=True)
        if entry.is_file() and entry != made / MANIFEST:
            link_or_copy(entry, path)
    run = stage.final.parent
    manifest = {REUSED_FROM: os.path.relpath(source, run), **(read_manifest(made) or {})}
    write_json(stage.partial / MANIFEST, manifest)
    replace_folder(stage.partial, stage.final)
