"""The API to start a run: upload a file, map its columns beside its first rows, and run it in its own process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from endtask.config import ColumnSettings, Settings, dump_yaml, load_settings
from endtask.corpus.sources import find_sources
from endtask.errors import InputError
from endtask.io.addresses import is_address
from endtask.io.atomic import write_text
from endtask.io.processes import make_output_folder
from endtask.io.run_layout import SETTINGS_FILE
from endtask.pipeline.run import Run
from endtask.reporting.format import shorten
from endtask.task.guess import guess_task
from endtask.task.split_tables import read_tables
from endtask.task.table import Table
from endtask.web.problems import CONFLICT, PROBLEMS
from endtask.web.site import Site, SiteHere

router = APIRouter(prefix="/api", tags=["start"], responses=PROBLEMS)
PRESETS = ("", "laptop", "gpu", "gpu-long", "demo")
_FIRST, _CELL = 8, 160
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
Short = Annotated[str, StringConstraints(max_length=500)]
UploadId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]


class Upload(BaseModel):
    """A file that was stored below the served folder."""

    id: str
    name: str
    bytes: int


class Columns(BaseModel):
    """Which column holds what; null for a column that is found by its usual names."""

    model_config = ConfigDict(extra="forbid")

    text: Short | None = None
    text_pair: Short | None = None
    label: Short | None = None


class ColumnChoice(BaseModel):
    """An uploaded file of labelled rows, and the columns chosen so far."""

    model_config = ConfigDict(extra="forbid")

    upload: UploadId
    columns: Columns = Columns()


class FirstRows(BaseModel):
    """The first rows of a file, the columns that are used, and what kind of task it is; `problem` if it is none yet."""

    columns: list[str]
    rows: list[list[str]]
    used: Columns
    summary: str
    problem: str | None


class NewRun(BaseModel):
    """A run to start. `corpus` are uploads, or paths on this machine where no token is set; empty: no corpus."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, StringConstraints(pattern=f"^{_NAME.pattern}$")]
    upload: UploadId
    columns: Columns = Columns()
    budget: Annotated[str, StringConstraints(min_length=2, max_length=40)]
    corpus: Annotated[list[UploadId], Field(max_length=20)] = []
    corpus_path: Short = ""
    preset: Annotated[str, StringConstraints(max_length=40)] = ""


class Started(BaseModel):
    """The id of a run that has been started."""

    id: str


@router.post("/uploads")
async def upload(request: Request, site: SiteHere, name: Annotated[str, Query(max_length=300)]) -> Upload:
    """Store the body of the request as a file of this name, up to 500 MB."""
    number, file, size = await site.uploads.store(name, request.stream())
    return Upload(id=number, name=file.name, bytes=size)


@router.post("/first-rows")
def first_rows(request: ColumnChoice, site: SiteHere) -> FirstRows:
    """Return the first rows of an uploaded file and the columns of text and label, guessed where they are not given."""
    file = site.uploads.file(request.upload)
    table = read_tables(str(file))[0]["train"]
    given = _column_settings(request.columns)
    used, summary, problem = given, "", None
    try:
        task = guess_task(str(file), given)
        used, summary = given.model_copy(update=task.columns), str(task)
    except InputError as error:
        problem = error.message if error.hint is None else f"{error.message} ({error.hint})"
    shown = Columns(text=used.text, text_pair=used.text_pair, label=used.label)
    return FirstRows(columns=table.columns, rows=_cells(table), used=shown, summary=summary, problem=problem)


@router.post("/runs", status_code=201, responses=CONFLICT)
def start(request: NewRun, site: SiteHere) -> Started:
    """Start a run in a process of its own, which goes on when the page is closed and when the server ends."""
    folder = site.root / request.name
    if (site.root / SETTINGS_FILE).exists():
        raise HTTPException(409, "the served folder is itself a run: serve the folder above it")
    if folder.exists():
        raise HTTPException(409, f"{request.name}: there is such a folder already; choose another name")
    settings = _settings(request, site, folder)
    if settings.corpus.sources:
        find_sources(settings.corpus.sources)
    Run(settings).check()
    make_output_folder(folder, SETTINGS_FILE)
    write_text(folder / SETTINGS_FILE, dump_yaml(settings))
    site.jobs.start(folder)
    return Started(id=next(name for name, path in site.runs.folders().items() if path == folder))


def _settings(request: NewRun, site: Site, folder: Path) -> Settings:
    """Return the settings of a new run; all paths are on this machine."""
    if request.preset not in PRESETS:
        raise InputError(f"no preset {request.preset!r}", hint=", ".join(filter(None, PRESETS)))
    columns = _column_settings(request.columns).model_dump(exclude_none=True)
    sources: list[dict[str, Any]] = [{"path": str(site.uploads.file(number))} for number in request.corpus]
    if request.corpus_path:
        sources.append({"path": _local_path(request.corpus_path, site)})
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "budget": request.budget,
        "task": {"path": str(site.uploads.file(request.upload)), "columns": columns},
        "corpus": {"sources": sources},
    }
    return load_settings(preset=request.preset or None, given=given)


def _local_path(path: str, site: Site) -> str:
    """Return a path of a corpus; raises for addresses, and with a token, whose holders may be elsewhere."""
    if site.access.token is not None:
        raise InputError("paths are for servers without a token", hint="drop the file on the page")
    if is_address(path) or path.startswith("hf:"):
        raise InputError(f"{path}: not on this machine", hint="endtask run reads addresses")
    return path


def _column_settings(columns: Columns) -> ColumnSettings:
    return ColumnSettings(**{name: value or None for name, value in columns.model_dump().items()})


def _cells(table: Table) -> list[list[str]]:
    rows = [row for _, row in table.rows[:_FIRST]]
    return [[shorten(str(row.get(name, "")), _CELL) for name in table.columns] for row in rows]
