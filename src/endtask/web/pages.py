"""The pages over runs: the table, a comparison, and the pages of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from endtask.pipeline.exclusions import FIRST_STAGE, excluded_ids
from endtask.reporting.page import REPORT
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.render import content_security_policy, static_text
from endtask.reporting.run_folder import RunFolder
from endtask.serving.predictor import takes_pairs
from endtask.web.comparing import TwoIds, compared
from endtask.web.error_page import errors_context
from endtask.web.live import progress_of
from endtask.web.predictions import LONGEST_TEXT
from endtask.web.runs import listed_runs
from endtask.web.site import RunHere, SiteHere
from endtask.web.starting import PRESETS

router = APIRouter(include_in_schema=False)
MOST_CHOICES = 100
"""Labels that a list to choose from has; of more there is no list."""


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


@router.get("/start")
def start_page(site: SiteHere) -> Response:
    """Return the page to start a run."""
    return site.page("start.html.jinja", title="Start", presets=PRESETS)


@router.get("/runs/{run}/selection")
def selection_page(run: str, folder: RunHere, site: SiteHere) -> Response:
    """Return the page to search the selection."""
    found = RunFolder(folder)
    audit = found.audit or {}
    labels = audit.get("labels", ())
    context = {
        "sources": sorted(found.counts("retrieve").get("corpus", {}).get("sources", {})),
        "labels": labels if len(labels) <= MOST_CHOICES else (),
        "excluded": excluded_ids(folder),
        "is_pending": _has_new_exclusions(found, excluded_ids(folder)),
        "first_stage": FIRST_STAGE,
    }
    return _page_of_run(site, "selection", run, folder, **context)


@router.get("/runs/{run}/errors")
def errors_page(
    run: str,
    folder: RunHere,
    site: SiteHere,
    label: Annotated[str, Query(max_length=1000)] = "",
    predicted: Annotated[str, Query(max_length=1000)] = "",
) -> Response:
    """Return the confusion matrix, the rows of a cell of it, and labels to check."""
    found = RunFolder(folder)
    if "evaluate" not in found.manifests or PredictionRows.find(found) is None:
        return _page_of_run(site, "errors", run, folder, errors=None)
    context = errors_context(found, label, predicted)
    return _page_of_run(site, "errors", run, folder, **context)


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


def _has_new_exclusions(run: RunFolder, excluded: tuple[str, ...]) -> bool:
    """Return whether the settings exclude other texts than the finished stages did."""
    manifest = run.manifests.get(FIRST_STAGE)
    before = manifest["settings"].get("corpus", {}).get("exclude", ()) if manifest else ()
    return manifest is not None and set(before) != set(excluded)


def _page_of_run(site: SiteHere, name: str, run: str, folder: Path, **context: Any) -> Response:
    found = RunFolder(folder)
    title = f"{name.capitalize()}: {run}"
    return site.page(f"{name}.html.jinja", title=title, run_id=run, run=found, **context)
