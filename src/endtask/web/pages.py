"""The pages over runs: the table, a comparison, and the pages of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from endtask.reporting.page import REPORT
from endtask.reporting.render import content_security_policy, static_text
from endtask.reporting.run_folder import RunFolder
from endtask.serving.predictor import takes_pairs
from endtask.web.comparing import TwoIds, compared
from endtask.web.live import progress_of
from endtask.web.predictions import LONGEST_TEXT
from endtask.web.runs import listed_runs
from endtask.web.site import RunHere, SiteHere

router = APIRouter(include_in_schema=False)


@router.get("/")
def runs_page(site: SiteHere) -> Response:
    """Return the table of runs."""
    return site.page("runs.html.jinja", title="Runs", runs=listed_runs(site))


@router.get("/compare")
def compare_page(run: TwoIds, site: SiteHere) -> Response:
    """Return the comparison of two runs."""
    return site.page("compare.html.jinja", title=f"{run[0]} and {run[1]}", found=compared(site, run))


@router.get("/runs/{run}/live")
def live_page(run: str, folder: RunHere, site: SiteHere) -> Response:
    """Return the page to watch a run."""
    return _page_of_run(site, "live", run, folder, progress=progress_of(site, folder))


@router.get("/runs/{run}/try")
def try_page(run: str, folder: RunHere, site: SiteHere) -> Response:
    """Return the page to type a text."""
    return _page_of_run(
        site,
        "try",
        run,
        folder,
        has_model="model" in RunFolder(folder).manifests,
        takes_pairs=takes_pairs(folder) is True,
        longest=LONGEST_TEXT,
    )


@router.get("/runs/{run}/report")
def report_page(run: str, folder: RunHere) -> Response:
    """Return the report of a run, which may run its own script and no other."""
    file = folder / REPORT
    if not file.is_file():
        raise HTTPException(404, "the run has no report yet: it is written when the run ends")
    policy = content_security_policy(static_text("page.js"))
    return Response(file.read_bytes(), media_type="text/html", headers={"content-security-policy": policy})


def _page_of_run(site: SiteHere, name: str, run: str, folder: Path, **context: Any) -> Response:
    found = RunFolder(folder)
    title = f"{name.capitalize()}: {run}"
    return site.page(f"{name}.html.jinja", title=title, run_id=run, run=found, **context)
