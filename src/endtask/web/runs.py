"""The API for runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from endtask.reporting.run_list import RunLine, run_line
from endtask.web.problems import PROBLEMS
from endtask.web.site import RunHere, Site, SiteHere

router = APIRouter(prefix="/api", tags=["runs"], responses=PROBLEMS)


class RunSummary(BaseModel):
    """A run: its state, its score (a mean over seeds) and its cost; `score` is null before the evaluation."""

    id: str
    state: str
    task: str
    metric: str | None
    score: float | None
    std: float | None
    seeds: int
    leak_free: float | None
    seconds: float
    tokens: int
    flops: float
    joules: float
    finished: str


class Session(BaseModel):
    """`csrf` is the value of the header X-CSRF-Token that every change needs."""

    csrf: str


def listed_runs(site: Site) -> list[tuple[str, RunLine]]:
    """Return the runs with their ids, by path."""
    return [(name, run_line(folder)) for name, folder in site.runs.folders().items()]


@router.get("/session")
async def session(site: SiteHere) -> Session:
    """Return what a program needs to make changes; pages of other sites cannot read it."""
    return Session(csrf=site.access.csrf)


@router.get("/runs")
def runs(site: SiteHere) -> list[RunSummary]:
    """List the runs of the served folder."""
    return [_summary(name, line) for name, line in listed_runs(site)]


@router.get("/runs/{run}")
def run(run: str, folder: RunHere) -> RunSummary:
    """Return a run."""
    return _summary(run, run_line(folder))


def _summary(name: str, line: RunLine) -> RunSummary:
    values: dict[str, Any] = line.to_dict()
    del values["path"]
    return RunSummary(id=name, **values)
