"""The files of prepared runs that a bundle holds: settings, finished stages, and the records of experiments."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from endtask.config import load_settings
from endtask.errors import InputError
from endtask.io.run_layout import DOMAIN, RETRIEVED, SELECTION, SETTINGS_FILE, SHARED_TOKENIZER, STAGES, record_file
from endtask.io.stage_files import FILES, LEFT_OUT, MANIFEST, FileRecord, check_stage, read_manifest, sealed
from endtask.io.stage_folder import StageFolder, left_out
from endtask.pipeline.inputs import LEVELS_ABOVE
from endtask.pipeline.run import Run

Kind = Literal["tokens", "text"]
LAST_STAGE: dict[Kind, str] = {"tokens": "pack", "text": "select"}

# Only the next stage reads the files of these stages; once it has finished, their manifests suffice.
_READ_BY_NEXT_STAGE = ("retrieve", "select")
_EXPERIMENT_RECORDS = (record_file("compare"), record_file("search"))
"""The records of `endtask compare` and `endtask search`; other files next to the runs belong to the user."""


@dataclass(frozen=True)
class Item:
    """A file of a bundle: its path there, the source of its bytes, and the part of the bundle it belongs to."""

    path: str
    source: Path | bytes
    part: str


def find_runs(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run, else all run folders below it.

    A comparison's run that only learned the shared tokenizer is left out: the tokenizer is an input of the others.
    """
    if not folder.is_dir():
        raise InputError("no such folder", path=folder)
    runs = []
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if record_file("compare") in names and SHARED_TOKENIZER in folders:
            folders.remove(SHARED_TOKENIZER)
        if SETTINGS_FILE in names:
            runs.append(Path(path))
            folders.clear()
    if not runs:
        raise InputError("no run here", path=folder, hint="give the folder that `endtask run --output` made")
    for run in runs:
        if len(run.relative_to(folder).parts) > LEVELS_ABOVE:
            message = f"the run is over {LEVELS_ABOVE} folders below {folder}, too deep to find its bundled inputs"
            raise InputError(message, path=run, hint="bundle a folder nearer to it")
    return runs


def open_run(folder: Path) -> Run:
    """Open the run in a folder, which may have been moved."""
    return Run(load_settings(folder / SETTINGS_FILE, given={"output_dir": str(folder)}))


def finished_stages(run: Run, kind: Kind) -> list[StageFolder]:
    """Return the finished stages of a run that a bundle of this kind contains."""
    stages = run.stage_folders()
    names = STAGES[: STAGES.index(LAST_STAGE[kind]) + 1]
    return [stages[name] for name in takewhile(lambda name: stages[name].is_finished(), names)]


def run_items(run: Run, stages: list[StageFolder], prefix: str) -> Iterator[Item]:
    """Yield a run's settings and finished stages; `prefix` is the path of the run in the bundle."""
    yield Item(f"{prefix}{SETTINGS_FILE}", run.folder / SETTINGS_FILE, "settings")
    for stage in stages:
        check_stage(stage.final, digests_up_to=math.inf)
        if stage.name in _READ_BY_NEXT_STAGE and stage is not stages[-1]:
            yield _manifest_item(stage, f"{prefix}{stage.name}/")
        else:
            yield from _stage_items(stage, f"{prefix}{stage.name}/")


def record_items(folder: Path, runs: Iterable[Path]) -> Iterator[Item]:
    """Yield the records of comparisons and searches in the parent folders of the runs; pages are made from them."""
    parents = {path for run in runs for path in run.parents if path == folder or folder in path.parents}
    for path in sorted(parents):
        for file in (path / name for name in _EXPERIMENT_RECORDS):
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
            path = file.relative_to(stage.final)
            yield Item(f"{prefix}{path.as_posix()}", file, _part(stage.name, path))


def _part(stage: str, path: Path) -> str:
    """Return the part of the bundle that a stage's file belongs to, for messages about sizes."""
    if stage == "select":
        return "selected text" if path.name in (SELECTION, DOMAIN) else "settings"
    if stage == "retrieve":
        return "retrieved text" if path.name == RETRIEVED else "settings"
    if stage == "pack" and len(path.parts) > 1:
        names = {"selection": "tokens of the selection", "domain": "tokens of the domain", "tokenizer": "tokenizer"}
        return names.get(path.parts[0], "tokens of the task")
    return "task" if stage == "read" else "settings"


def _manifest_item(stage: StageFolder, prefix: str) -> Item:
    files = {file.relative_to(stage.final).as_posix() for file in stage.final.rglob("*") if file.is_file()}
    names = sorted({*files, *left_out(stage.final)} - {MANIFEST})
    manifest = {**(read_manifest(stage.final) or {}), LEFT_OUT: names}
    return Item(f"{prefix}{MANIFEST}", _manifest_bytes(manifest), "settings")


def _manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(sealed(manifest), indent=2, ensure_ascii=False) + "\n").encode()


def with_plain_selections(items: Iterable[Item], scratch: Path) -> list[Item]:
    """Replace every table of texts by an uncompressed copy in `scratch`; the bundle's compression makes it smaller.

    Hard links to the same file share a copy. Manifests get the records of the copies.
    """
    copies: dict[tuple[int, int], Path] = {}
    replaced, records = [], {}
    for item in items:
        if isinstance(item.source, Path) and item.source.name in (SELECTION, DOMAIN, RETRIEVED):
            status = item.source.stat()
            copy = copies.setdefault((status.st_dev, status.st_ino), scratch / f"{len(copies)}.parquet")
            if not copy.exists():
                _copy_uncompressed(item.source, copy)
            item = replace(item, source=copy)
            records[item.path] = FileRecord.of(copy)
        replaced.append(item)
    return [_with_records(item, records) if item.path.endswith(f"/{MANIFEST}") else item for item in replaced]


def _with_records(item: Item, records: Mapping[str, FileRecord]) -> Item:
    """Return the item of a manifest with the records of replaced files of its stage."""
    folder = item.path.removesuffix(MANIFEST)
    own = {path.removeprefix(folder): record for path, record in records.items() if path.startswith(folder)}
    if not own:
        return item
    manifest = json.loads(item.source if isinstance(item.source, bytes) else item.source.read_bytes())
    files = {name: [record.bytes, record.digest] for name, record in own.items()}
    return replace(item, source=_manifest_bytes({**manifest, FILES: {**manifest.get(FILES, {}), **files}}))


def _copy_uncompressed(file: Path, copy: Path) -> None:
    """Write the same rows in the same groups without compression."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table, parquet.ParquetWriter(copy, table.schema_arrow, compression="none") as to:
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            to.write_table(group, row_group_size=max(1, group.num_rows))
