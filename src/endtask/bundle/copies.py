"""Copies of the data from outside that training reads, and a record of what stays behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from endtask.bundle.contents import Item
from endtask.config import Settings
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.errors import InputError
from endtask.io.stage_folder import read_manifest
from endtask.pipeline.bundled_inputs import COPIES, RECORD, BundledInput, BundledInputs
from endtask.pipeline.external_inputs import input_path, requested_inputs, tokenizer_files
from endtask.pipeline.run import Run
from endtask.task import Task
from endtask.task.stored import task_files

# What identifies this stays in the manifest of the stage that read it, so that the data itself need not be there.
_RECORDED_BY = {"corpus": "retrieve", "unlabelled": "retrieve", "selection": "select", "aligned": "pack"}
_SHORT = 12


@dataclass
class Outside:
    """The data from outside of several runs; what they have in common is there once."""

    pieces: dict[str, BundledInput] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        """Take in what a run reads; the run then goes by the record, as it will where the bundle is unpacked."""
        asked_for = requested_inputs(run.settings)
        key = json.dumps(asked_for["task"], sort_keys=True)
        if key in self._tasks:
            run.task = self._tasks[key]  # read once for all runs
        self._tasks[key] = run.task
        pieces = [self._piece(run, name) for name, asked in asked_for.items() if asked is not None]
        run.bundled = BundledInputs(run.folder, tuple(piece for piece in pieces if piece is not None))

    def all_items(self) -> Iterator[Item]:
        """The copies and the record of them."""
        yield from self.items.values()
        record = BundledInputs(Path(), tuple(self.pieces[key] for key in sorted(self.pieces))).as_json()
        yield Item(RECORD, record.encode(), "settings")

    def _piece(self, run: Run, name: str) -> BundledInput | None:
        asked = requested_inputs(run.settings)[name]
        mark = _mark(run, name)
        if mark is None:
            return None
        key = json.dumps([name, asked], sort_keys=True)
        known = self.pieces.get(key)
        if known is None:
            known = self.pieces[key] = BundledInput(name, asked, mark, self._copy(run, name, mark))
        if known.fingerprint != mark:
            what = f"the {name} ({input_path(run.settings, name)}) was another when an earlier of these runs read it"
            raise InputError(what, path=run.folder, hint="bundle one run alone, or redo them")
        return known

    def _copy(self, run: Run, name: str, mark: str) -> str | None:
        here = run.bundled.local_settings(run.settings)
        files = dict(_files(run, name, here))
        if not files:
            return None
        folder = f"{COPIES}/{name}-{mark[:_SHORT]}"
        for file, source in files.items():
            self.items[f"{folder}/{file}"] = Item(f"{folder}/{file}", source, name)
        return folder


def _mark(run: Run, name: str) -> str | None:
    """What identifies the data that the run was prepared with; None where it has not been read yet."""
    stage = _RECORDED_BY.get(name)
    if stage is None:
        return run.input_digest(name)
    manifest = read_manifest(run.folder / stage)
    return None if manifest is None else str(manifest["inputs"][name])


def _files(run: Run, name: str, here: Settings) -> Iterable[tuple[str, Path | bytes]]:
    if name == "task":
        return task_files(run.task).items()
    if name == "tokenizer" and here.tokenizer.path is not None:
        return [(file.name, file) for file in tokenizer_files(here.tokenizer.path)]
    if name == "checkpoint" and here.model.path is not None:
        # A tokenizer may lie beside the weights, and is then the one that the run uses.
        config = config_file(here.model.path)
        files = [config, *weight_files(here.model.path), *tokenizer_files(here.model.path, key="model.path")]
        return [(file.relative_to(config.parent).as_posix(), file) for file in files]
    return ()
