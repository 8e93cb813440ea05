"""What travels of prepared runs: their settings, their finished stages, and the files beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from endtask.config import load_settings
from endtask.errors import InputError
from endtask.io.run_layout import DOMAIN, SELECTION, SETTINGS_FILE, STAGES
from endtask.io.stage_folder import LEFT_OUT, MANIFEST, StageFolder, left_out, read_manifest
from endtask.pipeline.bundled_inputs import LEVELS_ABOVE
from endtask.pipeline.run import Run

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
