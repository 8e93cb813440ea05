"""The contents of a bundle: settings and finished stages of prepared runs, and copies of the inputs of training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal

from endtask.config import Settings, load_settings
from endtask.encoders.checkpoint_files import config_file, weight_files
from endtask.errors import InputError
from endtask.io.run_layout import DOMAIN, SELECTION, SETTINGS_FILE, STAGES
from endtask.io.stage_folder import LEFT_OUT, MANIFEST, StageFolder, left_out, read_manifest
from endtask.pipeline.bundled_inputs import COPIES, LEVELS_ABOVE, RECORD, BundledInput, BundledInputs
from endtask.pipeline.external_inputs import input_path, requested_inputs, tokenizer_files
from endtask.pipeline.run import Run
from endtask.task import Task
from endtask.task.task import task_files

Kind = Literal["tokens", "text"]
LAST_STAGE: dict[Kind, str] = {"tokens": "pack", "text": "select"}

# Only the next stage reads the files of these stages; once it has finished, their manifests suffice.
_FOR_THE_NEXT_STAGE = ("retrieve", "select")
_RECORDS = ("compare.json", "search.json")
"""The records of `endtask compare` and `endtask search`; other files next to the runs belong to the user."""
# The manifest of this stage stores the fingerprint of the input, so the input itself need not be in the bundle.
_RECORDED_BY = {"corpus": "retrieve", "unlabelled": "retrieve", "selection": "select", "aligned": "pack"}
_SHORT = 12


@dataclass(frozen=True)
class Item:
    """A file of a bundle: its path there, the source of its bytes, and the part of the bundle it belongs to."""

    path: str
    source: Path | bytes
    part: str


def find_runs(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run, else all run folders below it."""
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    found = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if SETTINGS_FILE in names:
            found.append(Path(path))
            folders.clear()
    if not found:
        raise InputError("no run here", path=folder, hint="give the folder that `endtask run --output` made")
    for run in found:
        if len(run.relative_to(folder).parts) > LEVELS_ABOVE:
            what = f"the run lies over {LEVELS_ABOVE} folders below {folder}, too deep to find the bundled inputs again"
            raise InputError(what, path=run, hint="bundle a folder nearer to it")
    return found


def open_run(folder: Path) -> Run:
    """Open the run in a folder, which may have been moved."""
    return Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))


def finished_stages(run: Run, kind: Kind) -> list[StageFolder]:
    """Return the finished stages of a run, up to the last that a bundle of this kind contains."""
    stages = run.stage_folders()
    wanted = STAGES[: STAGES.index(LAST_STAGE[kind]) + 1]
    return [stages[name] for name in takewhile(lambda name: stages[name].is_finished(), wanted)]


def run_items(run: Run, stages: list[StageFolder], prefix: str) -> Iterator[Item]:
    """Yield a run's settings and finished stages; `prefix` is the path of the run in the bundle."""
    yield Item(f"{prefix}{SETTINGS_FILE}", run.folder / SETTINGS_FILE, "settings")
    for stage in stages:
        if stage.name in _FOR_THE_NEXT_STAGE and stage is not stages[-1]:
            yield _manifest_item(stage, f"{prefix}{stage.name}/")
        else:
            yield from _stage_items(stage, f"{prefix}{stage.name}/")


def record_items(folder: Path, runs: Iterable[Path]) -> Iterator[Item]:
    """Yield the records of comparisons and searches in the folders above the runs; their pages are written again."""
    above = {path for run in runs for path in run.parents if path == folder or folder in path.parents}
    for path in sorted(above):
        for file in (path / name for name in _RECORDS):
            if file.is_file() and not file.is_symlink():
                yield Item(file.relative_to(folder).as_posix(), file, "records")


def _stage_items(stage: StageFolder, prefix: str) -> Iterator[Item]:
    missing = left_out(stage.final)
    if missing:
        raise InputError(
            f"{missing[0]} was left out of the bundle that this run came from", path=stage.final, hint="use --tokens"
        )
    for file in sorted(stage.final.rglob("*")):
        if file.is_file():
            inside = file.relative_to(stage.final)
            yield Item(f"{prefix}{inside.as_posix()}", file, _part(stage.name, inside))


def _part(stage: str, inside: Path) -> str:
    """Return the name of a file's part in a message about sizes."""
    if stage == "select":
        return "selected text" if inside.name in (SELECTION, DOMAIN) else "settings"
    if stage == "pack" and len(inside.parts) > 1:
        names = {"selection": "tokens of the selection", "domain": "tokens of the domain", "tokenizer": "tokenizer"}
        return names.get(inside.parts[0], "tokens of the task")
    return "task" if stage == "read" else "settings"


def _manifest_item(stage: StageFolder, prefix: str) -> Item:
    files = {file.relative_to(stage.final).as_posix() for file in stage.final.rglob("*") if file.is_file()}
    names = sorted({*files, *left_out(stage.final)} - {MANIFEST})
    manifest = {**(read_manifest(stage.final) or {}), LEFT_OUT: names}
    content = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return Item(f"{prefix}{MANIFEST}", content.encode(), "settings")


@dataclass
class InputCopies:
    """Copies of the external inputs of several runs; shared inputs are stored once."""

    inputs: dict[str, BundledInput] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    _tasks: dict[str, Task] = field(default_factory=dict)

    def add(self, run: Run) -> None:
        """Add the inputs of a run, which then uses this record as it will where the bundle is unpacked."""
        requested = requested_inputs(run.settings)
        key = json.dumps(requested["task"], sort_keys=True)
        if key in self._tasks:
            run.task = self._tasks[key]  # read once for all runs
        self._tasks[key] = run.task
        inputs = [self._input(run, name) for name, value in requested.items() if value is not None]
        run.bundled = BundledInputs(run.folder, tuple(found for found in inputs if found is not None))

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
            what = f"the {name} ({input_path(run.settings, name)}) changed since an earlier of these runs read it"
            raise InputError(what, path=run.folder, hint="bundle one run alone, or run them again")
        return known

    def _copy(self, run: Run, name: str, digest: str) -> str | None:
        here = run.bundled.local_settings(run.settings)
        files = dict(_input_files(run, name, here))
        if not files:
            return None
        folder = f"{COPIES}/{name}-{digest[:_SHORT]}"
        for file, source in files.items():
            self.items[f"{folder}/{file}"] = Item(f"{folder}/{file}", source, name)
        return folder


def _digest(run: Run, name: str) -> str | None:
    """Return the fingerprint of the input that the run was prepared with; None where no stage has read it yet."""
    stage = _RECORDED_BY.get(name)
    if stage is None:
        return run.input_digest(name)
    manifest = read_manifest(run.folder / stage)
    return None if manifest is None else str(manifest["inputs"][name])


def _input_files(run: Run, name: str, here: Settings) -> Iterable[tuple[str, Path | bytes]]:
    if name == "task":
        return task_files(run.task).items()
    if name == "tokenizer" and here.tokenizer.path is not None:
        return [(file.name, file) for file in tokenizer_files(here.tokenizer.path)]
    if name == "checkpoint" and here.model.path is not None:
        # The folder of the weights may contain the tokenizer that the run uses.
        config = config_file(here.model.path)
        files = [config, *weight_files(here.model.path), *tokenizer_files(here.model.path, key="model.path")]
        return [(file.relative_to(config.parent).as_posix(), file) for file in files]
    return ()


def with_plain_selections(items: Iterable[Item], scratch: Path) -> list[Item]:
    """Replace every selection by an uncompressed copy in `scratch`, which the bundle's own compression makes smaller.

    Hard links to one file share a copy.
    """
    copies: dict[tuple[int, int], Path] = {}
    found = []
    for item in items:
        if isinstance(item.source, Path) and item.source.name in (SELECTION, DOMAIN):
            status = item.source.stat()
            copy = copies.setdefault((status.st_dev, status.st_ino), scratch / f"{len(copies)}.parquet")
            if not copy.exists():
                _copy_uncompressed(item.source, copy)
            item = replace(item, source=copy)
        found.append(item)
    return found


def _copy_uncompressed(file: Path, copy: Path) -> None:
    """Write the same rows in the same groups without compression."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table, parquet.ParquetWriter(copy, table.schema_arrow, compression="none") as to:
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            to.write_table(group, row_group_size=max(1, group.num_rows))
