"""Reuse finished stages of other runs with the same settings and data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from endtask.config import Settings, dump_yaml
from endtask.errors import InputError
from endtask.io.atomic import link_or_copy, replace_folder, write_text
from endtask.io.processes import run_lock
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_files import MANIFEST, check_stage, read_manifest, write_manifest
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.inputs import reads_corpus
from endtask.pipeline.run import Run

REUSED_FROM = "reused_from"
"""Key in the manifest of a reused stage: the folder of the run that made it, relative to this run."""


def reuse_stages(target: Run, sources: Sequence[Path]) -> dict[str, Path]:
    """Link the finished stages of the run folders `sources` into `target`. Return the source of each linked stage.

    Stages are equal if their fingerprints are. Linking stops at the first stage that neither `target` nor a source has
    finished. Files are hard links if the disk supports them, since finished stages are never modified.
    """
    reused: dict[str, Path] = {}
    if not _is_empty_or_run(target.folder):
        return reused  # the run raises the error about its folder
    stages = target.stage_folders()
    target.folder.mkdir(parents=True, exist_ok=True)
    with run_lock(target.folder):
        if not (target.folder / SETTINGS_FILE).exists():
            write_text(target.folder / SETTINGS_FILE, dump_yaml(target.settings))
        for name, stage in stages.items():
            stage.recover()
            if stage.is_finished():
                continue
            source = next((folder for folder in sources if _has_stage(folder / name, stage)), None)
            if source is None or stage.clashes() or stage.can_resume():
                break
            _link_stage(source, stage)
            reused[name] = source
    return reused


def reuse_data(source: Run, run: Run) -> None:
    """Give `run` the task and the corpus of `source` if both runs read the same."""
    if all(getattr(run.settings, key) == getattr(source.settings, key) for key in ("task", "tasks", "seed")):
        run.task = source.task
    if _corpus_inputs(run.settings) == _corpus_inputs(source.settings):
        run.corpus = source.corpus


def _corpus_inputs(settings: Settings) -> tuple[object, ...]:
    """Return the settings that a run's corpus depends on, and whether the run reads a corpus."""
    return settings.corpus, settings.select, reads_corpus(settings)


def check_unchanged(run: Run) -> None:
    """Raise `InputError` if a run's settings or data changed since its folder was made."""
    clash = run.first_clash() if run.folder.exists() else None
    if clash is not None:
        raise InputError(
            f"what the stage {clash} reads changed since this run was made",
            path=run.folder,
            hint="choose another --output; nothing was touched",
        )


def is_reused(stage: Path) -> bool:
    """Return whether the stage in a folder was reused from another run."""
    return REUSED_FROM in (read_manifest(stage) or {})


def _is_empty_or_run(folder: Path) -> bool:
    if not folder.is_dir():
        return not folder.exists()
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    return not names or SETTINGS_FILE in names


def _has_stage(folder: Path, stage: StageFolder) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and manifest["fingerprint"] == stage.fingerprint


def _link_stage(source: Path, stage: StageFolder) -> None:
    """Link a stage's files; the manifest comes last, so that a killed process leaves no incomplete stage."""
    finished = source / stage.name
    check_stage(finished)
    if stage.partial.exists():
        shutil.rmtree(stage.partial)
    for entry in sorted(finished.rglob("*")):
        target = stage.partial / entry.relative_to(finished)
        (target if entry.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
        if entry.is_file() and entry != finished / MANIFEST:
            link_or_copy(entry, target)
    run = stage.final.parent
    manifest = {REUSED_FROM: os.path.relpath(source, run), **(read_manifest(finished) or {})}
    write_manifest(stage.partial, manifest)
    replace_folder(stage.partial, stage.final)
