"""The pages: runs, and a model to try."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from endtask.reporting.run_folder import RunFolder
from endtask.serving.predictor import takes_pairs
from endtask.web.predictions import LONGEST_TEXT
from endtask.web.runs import listed_runs
from endtask.web.site import RunHere, SiteHere

router = APIRouter(include_in_schema=False)


@router.get("/")
def runs_page(site: SiteHere) -> Response:
    """Return the table of runs."""
    return site.page("runs.html.jinja", title="Runs", runs=listed_runs(site))


@router.get("/runs/{run}/try")
def try_page(run: str, folder: RunHere, site: SiteHere) -> Response:
    """Return the page to type a text."""
    found = RunFolder(folder)
    return site.page(
        "try.html.jinja",
        title=f"Try {run}",
        run_id=run,
        run=found,
        has_model="model" in found.manifests,
        takes_pairs=takes_pairs(folder) is True,
        longest=LONGEST_TEXT,
    )
