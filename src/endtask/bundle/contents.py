"""What travels of prepared runs: their settings, their finished stages, and the files beside them.

Copies of the data from outside that training reads, and a record of what stays behind.

Selections without compression of their own: the bundle's, which sees all of the text at once, does better."""

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
from endtask.pipeline.bundled_inputs import COPIES, LEVELS_ABOVE, OUTSIDE, BundledInput, BundledInputs
from endtask.pipeline.external_inputs import asked_of, data_path, tokenizer_files
from endtask.pipeline.run import Run
from endtask.task import Task
from endtask.task.stored import task_files

Kind = Literal["tokens", "text"]
LAST_STAGE: dict[Kind, str] = {"tokens": "pack", "text": "select"}

# Their files are for the next stage alone; once that is done, their manifests say enough.
_FOR_THE_NEXT_STAGE = ("retrieve", "select")
_RECORDS = ("compare.json", "search.json")
"""What `endtask compare` and `endtask search` keep beside their runs; whatever else lies there is the user's own."""


@dataclass(frozen=True)
class Item:
    """A file of a bundle: its path there, where its bytes come from, and the part of the whole it counts to."""

    path: str
    source: Path | bytes
    part: str


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else all folders of runs below it."""
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if SETTINGS_FILE in names:
            found.append(Path(place))
            folders.clear()
    if not found:
        raise InputError("no run stands here", path=folder, hint="give the folder that `endtask run --output` made")
    for run in found:
        if len(run.relative_to(folder).parts) > LEVELS_ABOVE:
            what = f"the run lies over {LEVELS_ABOVE} folders below {folder}, too deep to find the bundle's data again"
            raise InputError(what, path=run, hint="bundle a folder nearer to it")
    return found


def open_run(folder: Path) -> Run:
    """The run in a folder, which may have been moved since."""
    return Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))


def finished_stages(run: Run, kind: Kind) -> list[StageFolder]:
    """The stages of a run that stand finished, up to the last one that such a bundle holds."""
    stages = run.stage_folders()
    wanted = STAGES[: STAGES.index(LAST_STAGE[kind]) + 1]
    return [stages[name] for name in takewhile(lambda name: stages[name].is_finished(), wanted)]


def run_items(run: Run, stages: list[StageFolder], prefix: str) -> Iterator[Item]:
    """A run's settings and finished stages; `prefix` is where the run stands in the bundle."""
    yield Item(f"{prefix}{SETTINGS_FILE}", run.folder / SETTINGS_FILE, "settings")
    for stage in stages:
        if stage.name in _FOR_THE_NEXT_STAGE and stage is not stages[-1]:
            yield _manifest_alone(stage, f"{prefix}{stage.name}/")
        else:
            yield from _whole_stage(stage, f"{prefix}{stage.name}/")


def items_beside(folder: Path, runs: Iterable[Path]) -> Iterator[Item]:
    """Records of comparisons and searches in the folders that lead to the runs; pages are made anew."""
    above = {place for run in runs for place in run.parents if place == folder or folder in place.parents}
    for place in sorted(above):
        for file in (place / name for name in _RECORDS):
            if file.is_file() and not file.is_symlink():
                yield Item(file.relative_to(folder).as_posix(), file, "records")


def _whole_stage(stage: StageFolder, prefix: str) -> Iterator[Item]:
    missing = left_out(stage.final)
    if missing:
        raise InputError(
            f"{missing[0]} was left out of the bundle that this came from", path=stage.final, hint="use --tokens"
        )
    for file in sorted(stage.final.rglob("*")):
        if file.is_file():
            inside = file.relative_to(stage.final)
            yield Item(f"{prefix}{inside.as_posix()}", file, _part(stage.name, inside))


def _part(stage: str, inside: Path) -> str:
    """What people call it in a line about sizes."""
    if stage == "select":
        return "selected text" if inside.name in (SELECTION, DOMAIN) else "settings"
    if stage == "pack" and len(inside.parts) > 1:
        names = {"selection": "tokens of the selection", "domain": "tokens of the domain", "tokenizer": "tokenizer"}
        return names.get(inside.parts[0], "tokens of the task")
    return "task" if stage == "read" else "settings"


def _manifest_alone(stage: StageFolder, prefix: str) -> Item:
    files = {file.relative_to(stage.final).as_posix() for file in stage.final.rglob("*") if file.is_file()}
    names = sorted({*files, *left_out(stage.final)} - {MANIFEST})
    manifest = {**(read_manifest(stage.final) or {}), LEFT_OUT: names}
    content = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    return Item(f"{prefix}{MANIFEST}", content.encode(), "settings")


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
        asked_for = asked_of(run.settings)
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
        yield Item(OUTSIDE, record.encode(), "settings")

    def _piece(self, run: Run, name: str) -> BundledInput | None:
        asked = asked_of(run.settings)[name]
        mark = _mark(run, name)
        if mark is None:
            return None
        key = json.dumps([name, asked], sort_keys=True)
        known = self.pieces.get(key)
        if known is None:
            known = self.pieces[key] = BundledInput(name, asked, mark, self._copy(run, name, mark))
        if known.fingerprint != mark:
            what = f"the {name} ({data_path(run.settings, name)}) was another when an earlier of these runs read it"
            raise InputError(what, path=run.folder, hint="bundle one run alone, or redo them")
        return known

    def _copy(self, run: Run, name: str, mark: str) -> str | None:
        here = run.bundled.settings_here(run.settings)
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
        return run.fingerprint_from_outside(name)
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


def with_plain_selections(items: Iterable[Item], scratch: Path) -> list[Item]:
    """The items with every selection exchanged for an uncompressed copy in `scratch`, equal ones for the same."""
    copies: dict[tuple[int, int], Path] = {}
    found = []
    for item in items:
        if isinstance(item.source, Path) and item.source.name in (SELECTION, DOMAIN):
            status = item.source.stat()
            place = copies.setdefault((status.st_dev, status.st_ino), scratch / f"{len(copies)}.parquet")
            if not place.exists():
                _copy_plain(item.source, place)
            item = replace(item, source=place)
        found.append(item)
    return found


def _copy_plain(file: Path, place: Path) -> None:
    """The same rows in the same groups, as they are."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table, parquet.ParquetWriter(place, table.schema_arrow, compression="none") as to:
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            to.write_table(group, row_group_size=max(1, group.num_rows))
