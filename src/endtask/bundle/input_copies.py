"""The copies of external inputs that a bundle holds: task, tokenizer and checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from endtask.bundle.items import Item
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.errors import InputError
from endtask.io.stage_files import read_manifest
from endtask.pipeline.inputs import (
    COPIES,
    RECORD,
    BundledInput,
    BundledInputs,
    input_path,
    requested_inputs,
    tokenizer_files,
)
from endtask.pipeline.run import Run
from endtask.task import Task
from endtask.task.task import task_files

# The manifest of this stage has the fingerprint of the input, so the bundle needs no copy of the input.
_RECORDED_BY = {"corpus": "retrieve", "selection": "select", "aligned": "pack"}
_DIGEST_CHARACTERS = 12


@dataclass
class InputCopies:
    """Copies of the external inputs of several runs; shared inputs are stored once."""

    inputs: dict[str, BundledInput] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        """Add the inputs of a run, and make the run use the copies as it will after the bundle is unpacked."""
        requested = requested_inputs(run.settings)
        key = json.dumps(requested["task"], sort_keys=True)
        if key in self._tasks:
            run.task = self._tasks[key]  # read once for all runs
        self._tasks[key] = run.task
        inputs = [self._input(run, name) for name, value in requested.items() if value is not None]
        run.bundled = BundledInputs(run.folder, tuple(bundled for bundled in inputs if bundled is not None))

    def all_items(self) -> Iterator[Item]:
        """Yield the copies and their record."""
        yield from self.items.values()
        record = BundledInputs(Path(), tuple(self.inputs[key] for key in sorted(self.inputs))).as_json()
        yield Item(RECORD, record.encode(), "settings")

    def _input(self, run: Run, name: str) -> BundledInput | None:
        requested = requested_inputs(run.settings)[name]
        digest = _digest(run, name)
        if digest is None:
            return None
        key = json.dumps([name, requested], sort_keys=True)
        known = self.inputs.get(key)
        if known is None:
            known = self.inputs[key] = BundledInput(name, requested, digest, self._copy(run, name, digest))
        if known.fingerprint != digest:
            message = f"the {name} ({input_path(run.settings, name)}) changed since an earlier of these runs read it"
            raise InputError(message, path=run.folder, hint="bundle each run separately, or run them again")
        return known

    def _copy(self, run: Run, name: str, digest: str) -> str | None:
        files = dict(_input_files(run, name))
        if not files:
            return None
        folder = f"{COPIES}/{name}-{digest[:_DIGEST_CHARACTERS]}"
        for file, source in files.items():
            self.items[f"{folder}/{file}"] = Item(f"{folder}/{file}", source, name)
        return folder


def _digest(run: Run, name: str) -> str | None:
    """Return the digest of the input that the run was prepared with; None if no stage has read it yet."""
    stage = _RECORDED_BY.get(name)
    if stage is None:
        return run.input_digest(name)
    manifest = read_manifest(run.folder / stage)
    return None if manifest is None else str(manifest["inputs"][name])


def _input_files(run: Run, name: str) -> Iterable[tuple[str, Path | bytes]]:
    """Return the files of an input with their paths in its copy; empty if the bundle needs no copy."""
    settings = run.bundled.local_settings(run.settings)
    if name == "task":
        return task_files(run.task).items()
    if name == "tokenizer" and settings.tokenizer.path is not None:
        return [(file.name, file) for file in tokenizer_files(settings.tokenizer.path)]
    if name == "checkpoint" and settings.model.path is not None:
        # The folder of the weights may contain the tokenizer that the run uses.
        config = config_file(settings.model.path)
        files = [config, *weight_files(settings.model.path), *tokenizer_files(settings.model.path, key="model.path")]
        return [(file.relative_to(config.parent).as_posix(), file) for file in files]
    return ()
