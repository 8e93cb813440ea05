"""Folders of models: what a saved one holds, where its run is, and its upload to the hub."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from endtask.api.stored_run import StoredRun
from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.io.atomic import atomic_folder, disk_errors_named, link_or_copy, write_json
from endtask.io.parsing import parse_json
from endtask.io.run_layout import SETTINGS_FILE, TASKS
from endtask.io.stage_files import FILES, MANIFEST, checked, read_manifest, write_manifest

FACTS = "endtask-task.json"
"""In a saved model: its task type, and the settings by which rows are read and scored."""
RUN = "run"
"""In a saved model: the part of its run that `evaluate` and `explain` read."""
_RUN_FILES = (
    SETTINGS_FILE,
    "report.html",
    *(f"{stage}/{MANIFEST}" for stage in ("read", "retrieve", "select", "pack", "finetune", "evaluate")),
    "read/*.json*",
    "retrieve/*.parquet",
    "select/*.parquet",
    "pack/tokenizer/*",
    "finetune/seed-*/best.safetensors",
    "finetune/seed-*/result.json",
    "evaluate/*.json*",
)


@dataclass(frozen=True)
class Facts:
    """What a saved model knows about its task without its run."""

    type: str
    takes_pairs: bool | None
    settings: Settings


def model_folder(folder: Path) -> tuple[StoredRun | None, Path]:
    """Return the run behind a folder, if it is there, and the folder of the model's files."""
    if (folder / "model" / "config.json").exists():
        return StoredRun.find(folder), folder / "model"
    if (folder / RUN / SETTINGS_FILE).exists():
        return StoredRun.find(folder / RUN), folder
    is_stage = folder.resolve().name == "model" and (folder / MANIFEST).exists()
    return (StoredRun.find(folder.parent) if is_stage else None), folder


def stored_facts(model: Path) -> Facts | None:
    """Return the facts in a saved model's folder; None where the folder is that of a run or from elsewhere."""
    path = model / FACTS
    if not path.exists():
        return None
    try:
        tree: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        type_name, takes_pairs, settings = tree["type"], tree["takes_pairs"], tree["settings"]
    except (ValueError, KeyError, TypeError):
        raise InputError("not the facts of a model", path=path, hint="was the file changed by hand?") from None
    return Facts(type_name, takes_pairs, resolve(settings, where=str(path)))


def save_model(source: Path, facts: Facts, run: StoredRun | None, folder: Path) -> Path:
    """Write the files of a model, and of its run if given, to a folder, whole or not at all.

    Replaces a model that was saved there.
    """
    if folder.exists() and not (folder / FACTS).exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = "the folder has other files; nothing was written"
        raise InputError(message, path=folder, hint="choose another folder")
    with disk_errors_named(folder), atomic_folder(folder) as temporary:
        _write(source, facts, run, temporary)
    return folder


def _write(source: Path, facts: Facts, run: StoredRun | None, folder: Path) -> None:
    ignored = shutil.ignore_patterns(MANIFEST, RUN, TASKS, FACTS, ".*")
    shutil.copytree(source, folder, ignore=ignored, dirs_exist_ok=True)
    settings = facts.settings.model_dump(mode="json")
    task = {key: settings["task"][key] for key in ("columns", "label_delimiter")}
    stored = {"task": task, "evaluate": settings["evaluate"]}
    write_json(folder / FACTS, {"type": facts.type, "takes_pairs": facts.takes_pairs, "settings": stored})
    if run is not None:
        _copy_run(run.folder, folder / RUN)


def _copy_run(run: Path, target: Path) -> None:
    for pattern in _RUN_FILES:
        for file in sorted(run.glob(pattern)):
            copy = target / file.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if file.name != MANIFEST:
                link_or_copy(checked(file, digests_up_to=math.inf), copy)
    for file in run.glob(f"*/{MANIFEST}"):
        if (copies := target / file.parent.name).is_dir():
            write_manifest(copies, _manifest_of_copies(file.parent, copies))


def _manifest_of_copies(stage: Path, copies: Path) -> dict[str, Any]:
    """Return the manifest of a stage with the records of those files that were copied."""
    manifest = read_manifest(stage) or {}
    records = {name: record for name, record in manifest.get(FILES, {}).items() if (copies / name).is_file()}
    return {**manifest, FILES: records}


def upload(source: Path, facts: Facts, name: str, *, private: bool) -> str:
    """Upload a model's files without its run to the hub; returns the address of its repository."""
    from endtask.export import hub

    with TemporaryDirectory() as scratch:
        folder = save_model(source, facts, None, Path(scratch) / "model")
        return hub.upload(folder, name, public=not private)
