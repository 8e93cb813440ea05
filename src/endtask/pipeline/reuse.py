"""Finished stages of one run given to another whose settings and data agree so far, without doing them again."""

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

REUSED_FROM = "shared_from"
"""Key of a manifest whose stage was done elsewhere: the folder of that run, seen from this one."""


def reuse_stages(target: Run, sources: Sequence[Path]) -> dict[str, Path]:
    """Give `target` each stage that stands finished in one of the run folders `sources`; returns who gave what.

    Stages are told apart by their fingerprints, so only equal ones are given, from the first one on and up to the
    first that no source has. What `target` already holds stays. Files are hard links where the disk allows it: no
    finished stage is ever written to again.
    """
    given: dict[str, Path] = {}
    if not _is_empty_or_run(target.folder):
        return given  # the run itself says what is wrong with its folder
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
            _give(source, stage)
            given[name] = source
    return given


def share_inputs(lender: Run, run: Run) -> None:
    """Spare reading the task and hashing the corpus again, where a run reads the same as the lender."""
    if all(getattr(run.settings, key) == getattr(lender.settings, key) for key in ("task", "tasks", "seed")):
        run.task = lender.task
    if _corpus_read(run.settings) == _corpus_read(lender.settings):
        run.corpus = lender.corpus


def _corpus_read(settings: Settings) -> tuple[object, ...]:
    """What decides on the corpus of a run, and whether it has one at all."""
    return settings.corpus, settings.select, reads_corpus(settings)


def is_reused(stage: Path) -> bool:
    """Whether the stage in this folder was done by another run."""
    return REUSED_FROM in (read_manifest(stage) or {})


def _is_empty_or_run(folder: Path) -> bool:
    if not folder.is_dir():
        return not folder.exists()
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    return not names or SETTINGS_FILE in names


def _holds(folder: Path, stage: StageFolder) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and manifest["fingerprint"] == stage.fingerprint


def _give(source: Path, stage: StageFolder) -> None:
    """Link a stage's files; the manifest comes last, so that a kill leaves nothing that passes for a stage."""
    done = source / stage.name
    if stage.partial.exists():
        shutil.rmtree(stage.partial)
    for entry in sorted(done.rglob("*")):
        place = stage.partial / entry.relative_to(done)
        (place if entry.is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
        if entry.is_file() and entry != done / MANIFEST:
            link_or_copy(entry, place)
    run = stage.final.parent
    manifest = {REUSED_FROM: os.path.relpath(source, run), **(read_manifest(done) or {})}
    write_json(stage.partial / MANIFEST, manifest)
    replace_folder(stage.partial, stage.final)
