"""What a bundle says about external inputs: their digests, copies of those that training reads, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.nested import flatten
from endtask.io.stage_folder import StageFolder, left_out
from endtask.pipeline.external_inputs import EXTERNAL_INPUTS, input_path, requested_inputs
from endtask.pipeline.stages import STAGES
from endtask.task import Task
from endtask.task.task import read_task

RECORD = "external_inputs.json"
COPIES = "external_inputs"
"""The folder of the copies, next to the record."""

LEVELS_ABOVE = 3
"""How many folders above a run its record may be; all runs of a bundle share a record, also those of a comparison."""

_FORMAT = 1


@dataclass(frozen=True)
class BundledInput:
    """An external input: the settings that request it, its digest, and its copy, relative to the record's folder."""

    name: str
    requested: dict[str, Any]
    fingerprint: str
    copy: str | None = None


@dataclass(frozen=True)
class BundledInputs:
    """The record in an unpacked bundle; without `inputs` in other folders."""

    root: Path
    inputs: tuple[BundledInput, ...] = ()

    def find(self, name: str, settings: Settings) -> BundledInput | None:
        """Return the input of this name that the settings request, if the bundle knows it."""
        requested = requested_inputs(settings)[name]
        return next((found for found in self.inputs if found.name == name and found.requested == requested), None)

    def copy_of(self, name: str, settings: Settings) -> Path | None:
        """Return the path of an input's copy; None without a copy."""
        found = self.find(name, settings)
        return None if found is None or found.copy is None else self.root / found.copy

    def task(self, settings: Settings) -> Task | None:
        """Return the labelled data as read where the bundle was made; None without a copy."""
        folder = self.copy_of("task", settings)
        return None if folder is None else read_task(folder)

    def explain_other_task(self, settings: Settings, error: InputError) -> InputError:
        """Return the error to raise where the settings request another task than the bundle holds."""
        found = next((found for found in self.inputs if found.name == "task"), None)
        if found is None:
            return error
        before, now = flatten(found.requested), flatten(requested_inputs(settings)["task"])
        changed = ", ".join(key for key in now if now[key] != before.get(key))
        return InputError(
            f"the bundle holds the task as read with another {changed}, and its files are not here: {error}"
        )

    def local_settings(self, settings: Settings) -> Settings:
        """Return the settings with paths that lead to the copies."""
        model, tokenizer = settings.model, settings.tokenizer
        checkpoint = self.copy_of("checkpoint", settings)
        if checkpoint is not None:
            model = model.model_copy(update={"path": str(checkpoint)})
        given = self.copy_of("tokenizer", settings) if tokenizer.path is not None else None
        if given is not None:
            tokenizer = tokenizer.model_copy(update={"path": str(given)})
        return settings.model_copy(update={"model": model, "tokenizer": tokenizer})

    def why_missing(self, name: str, settings: Settings) -> str | None:
        """Return why an input cannot be read on this machine; None where it can."""
        found = self.find(name, settings)
        if found is None or found.copy is not None:
            return None
        return f"the {name} ({input_path(settings, name)}) stayed on the machine where the bundle was made"

    def as_json(self) -> str:
        """Return the content of the record file."""
        tree = {"format": _FORMAT, "inputs": [asdict(found) for found in self.inputs]}
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"


def find_bundled_inputs(folder: Path) -> BundledInputs:
    """Return the record for a run's folder, from the folder itself or one above it."""
    for parent in (folder, *folder.absolute().parents[:LEVELS_ABOVE]):
        if (parent / RECORD).is_file():
            return _read(parent)
    return BundledInputs(folder)


def first_missing(
    to_do: Sequence[str], folders: Mapping[str, StageFolder], bundled: BundledInputs, settings: Settings
) -> tuple[str, str] | None:
    """Return the first of the stages to do that cannot run on this machine, and why; None where all can."""
    for name in to_do:
        stage = STAGES[name]
        reasons = [bundled.why_missing(opened, settings) for opened in stage.inputs_opened(settings)]
        before = stage.reads_files_of
        if before is not None and before not in to_do and left_out(folders[before].final):
            reasons.append(f"the files of the stage {before} stayed on the machine where the bundle was made")
        reason = next((reason for reason in reasons if reason), None)
        if reason is not None:
            return name, f"cannot be done here: {reason}"
    return None


def _read(root: Path) -> BundledInputs:
    path = root / RECORD
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        version = tree["format"]
        inputs = tuple(_parse_input(each) for each in tree["inputs"]) if version == _FORMAT else ()
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError("not the record of a bundle", path=path, hint="was the file changed by hand?") from None
    if version != _FORMAT:
        raise InputError(f"written by a newer endtask (format {version!r:.20})", path=path, hint="upgrade endtask")
    if any(found.copy is not None and not _is_below(found.copy) for found in inputs):
        raise InputError("the path of a copy leads out of the bundle", path=path, hint="was the file changed by hand?")
    return BundledInputs(root, inputs)


def _parse_input(tree: Any) -> BundledInput:
    found = BundledInput(**tree)
    if not isinstance(found.requested, dict) or not isinstance(found.copy, str | None):
        raise TypeError
    if found.name not in EXTERNAL_INPUTS or not isinstance(found.fingerprint, str):
        raise ValueError
    return found


def _is_below(copy: str) -> bool:
    path = PurePosixPath(copy)
    return copy.isprintable() and not path.is_absolute() and ".." not in path.parts
