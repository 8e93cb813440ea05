"""The API for runs that go on: how far they are, their curves, stop and resume."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from endtask.errors import InputError
from endtask.io.parsing import ParseError, parse_json
from endtask.io.run_layout import RUN_LOG, STAGES
from endtask.progress.log import PROGRESS_FILE
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.run_list import run_line
from endtask.reporting.running import charts_so_far
from endtask.web.jobs import tail
from endtask.web.problems import CONFLICT, PROBLEMS
from endtask.web.site import RunHere, Site, SiteHere

router = APIRouter(prefix="/api", tags=["live"], responses=PROBLEMS)
_SHOWN_LINES = 40
_STAMPED = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (warning|error|note): (.*)$")


class Stage(BaseModel):
    """A stage of a run, and the seconds that it took if it is finished."""

    name: str
    state: Literal["finished", "running", "stopped", "open"]
    seconds: float | None


class Step(BaseModel):
    """What the run is doing at the moment; null for what it does not know."""

    model_config = ConfigDict(extra="ignore")

    stage: str | None = None
    number: int | None = None
    stages: int | None = None
    description: str | None = None
    done: float | None = None
    total: float | None = None
    note: str = ""
    seconds_left: float | None = None
    seconds_left_of_run: float | None = None


class Progress(BaseModel):
    """How far a run is. `log` has the last lines of `run.log`; `problem` is why it stopped, if it was an error."""

    state: str
    alive: bool
    finished: bool
    stages: list[Stage]
    step: Step | None
    warnings: list[str]
    log: list[str]
    problem: str | None


class Charts(BaseModel):
    """Curves so far, as SVG drawings."""

    charts: list[str]


class Resume(BaseModel):
    """How to resume: `start` is a stage that is redone with all later ones; null goes on where the run stopped."""

    model_config = ConfigDict(extra="forbid")

    start: Annotated[str | None, Field(max_length=40)] = None


@router.get("/runs/{run}/progress")
def progress(run: str, folder: RunHere, site: SiteHere) -> Progress:
    """Return the stage, the time left, warnings and the last lines of the log."""
    return progress_of(site, folder)


@router.get("/runs/{run}/charts")
def charts(run: str, folder: RunHere) -> Charts:
    """Return the curves of pre-training and fine-tuning so far."""
    return Charts(charts=[str(chart) for chart in charts_so_far(folder)])


@router.post("/runs/{run}/stop", responses=CONFLICT)
def stop(run: str, folder: RunHere, site: SiteHere) -> Progress:
    """Stop a run; what it has done stays, and it can be resumed."""
    site.jobs.stop(folder)
    return progress_of(site, folder)


@router.post("/runs/{run}/resume", responses=CONFLICT)
def resume(run: str, request: Resume, folder: RunHere, site: SiteHere) -> Progress:
    """Resume a stopped run in a process of its own, or redo it from a stage on."""
    if request.start is not None and request.start not in STAGES:
        raise InputError(f"no stage {request.start!r}", hint=f"one of {', '.join(STAGES)}")
    site.jobs.start(folder, *(("--from", request.start) if request.start else ()))
    return progress_of(site, folder)


def progress_of(site: Site, folder: Path) -> Progress:
    """Return how far a run is."""
    run, alive = RunFolder(folder), site.jobs.is_alive(folder)
    lines = [line for line in tail(folder / RUN_LOG) if line]
    state = run_line(folder).state
    return Progress(
        state="starting" if alive and not state.startswith("running") else state,
        alive=alive,
        finished=not run.missing,
        stages=[_stage(run, name, alive=alive) for name in STAGES],
        step=_step(folder) if alive else None,
        warnings=_warnings(lines),
        log=lines[-_SHOWN_LINES:],
        problem=site.jobs.problem(folder),
    )


def _stage(run: RunFolder, name: str, *, alive: bool) -> Stage:
    manifest = run.manifests.get(name)
    if manifest is not None:
        return Stage(name=name, state="finished", seconds=float(manifest["seconds"]))
    started = name in run.started
    return Stage(name=name, state=("running" if alive else "stopped") if started else "open", seconds=None)


def _step(folder: Path) -> Step | None:
    try:
        values: Any = parse_json((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ParseError):
        return None
    return Step.model_validate(values)


def _warnings(lines: list[str]) -> list[str]:
    """Return the warnings of the log without their times, each once.

    >>> _warnings(["2026-01-01 10:00:00 warning: few rows", "2026-01-01 10:00:01 read: started"])
    ['warning: few rows']
    """
    found = (_STAMPED.match(line) for line in lines)
    return list(dict.fromkeys(f"{match[1]}: {match[2]}" for match in found if match))
