"""Reuse of finished stages: a run takes over a stage that another run did with the same settings and data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from endtask.config import Settings, dump_yaml
from endtask.errors import InputError
from endtask.io.atomic import link_or_copy, replace_folder, write_json, write_text
from endtask.io.processes import run_lock
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import MANIFEST, StageFolder, read_manifest
from endtask.pipeline.inputs import reads_corpus
from endtask.pipeline.run import Run

REUSED_FROM = "reused_from"
"""Key in the manifest of a reused stage: the folder of the run that did it, relative to this run."""


def reuse_stages(target: Run, sources: Sequence[Path]) -> dict[str, Path]:
    """Give `target` each stage that is finished in one of the run folders `sources`; return the source of each.

    Stages are equal if their fingerprints are. They are taken from the first stage on, up to the first that no source
    has; stages that `target` has are left alone. Files are hard links if the disk allows it: no finished stage is ever
    written to again.
    """
    reused: dict[str, Path] = {}
    if not _is_empty_or_run(target.folder):
        return reused  # the run itself reports what is wrong with its folder
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
    """Give `run` the task and corpus that `source` has read, as far as both read the same."""
    if all(getattr(run.settings, key) == getattr(source.settings, key) for key in ("task", "tasks", "seed")):
        run.task = source.task
    if _corpus_inputs(run.settings) == _corpus_inputs(source.settings):
        run.corpus = source.corpus


def _corpus_inputs(settings: Settings) -> tuple[object, ...]:
    """Return what a run's corpus depends on, and whether the run has one."""
    return settings.corpus, settings.select, reads_corpus(settings)


def check_unchanged(run: Run) -> None:
    """Raise if a run's settings or data changed since its folder was made."""
    clash = run.first_clash() if run.folder.exists() else None
    if clash is not None:
        raise InputError(
            f"what the stage {clash} reads changed since this run was made",
            path=run.folder,
            hint="choose another --output; nothing was touched",
        )


def is_reused(stage: Path) -> bool:
    """Return whether another run did the stage in this folder."""
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
    """Link a stage's files; the manifest comes last, so that a kill leaves nothing that looks like a stage."""
    done = source / stage.name
    if stage.partial.exists():
        shutil.rmtree(stage.partial)
    for entry in sorted(done.rglob("*")):
        target = stage.partial / entry.relative_to(done)
        (target if entry.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
        if entry.is_file() and entry != done / MANIFEST:
            link_or_copy(entry, target)
    run = stage.final.parent
    manifest = {REUSED_FROM: os.path.relpath(source, run), **(read_manifest(done) or {})}
    write_json(stage.partial / MANIFEST, manifest)
    replace_folder(stage.partial, stage.final)
