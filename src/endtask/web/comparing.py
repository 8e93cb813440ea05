"""The API to compare two runs with the paired test."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from endtask.experiments.statistics import Difference
from endtask.experiments.two_runs import TwoRuns, compare_two
from endtask.web.problems import PROBLEMS
from endtask.web.site import Site, SiteHere

router = APIRouter(prefix="/api", tags=["runs"], responses=PROBLEMS)
TwoIds = Annotated[list[str], Query(min_length=2, max_length=2, description="the ids of two runs")]


class TestedDifference(BaseModel):
    """The second run's score less the first's: 95% interval, p-value of the paired permutation test over rows.

    `p_runs` permutes seeds instead of rows; null with fewer than four. `clear` says whether the difference is
    significant at 5% and the interval has no zero.
    """

    mean: float
    low: float | None
    high: float | None
    p_value: float
    p_runs: float | None
    clear: bool


class ComparedRun(BaseModel):
    """A run's score with its 95% interval over rows and seeds, and its cost."""

    id: str
    score: float
    std: float
    low: float | None
    high: float | None
    leak_free: float | None
    train_seconds: float
    flops: float


class Compared(BaseModel):
    """Two runs on the same rows; `changes` are the settings that differ, from the first to the second."""

    metric: str
    split: str
    rows: int
    groups: int
    first: ComparedRun
    second: ComparedRun
    difference: TestedDifference
    leak_free_difference: TestedDifference | None
    changes: list[str]


@router.get("/compare")
def compare(run: TwoIds, site: SiteHere) -> Compared:
    """Compare two evaluated runs on the same rows by a paired permutation test."""
    return compared(site, run)


def compared(site: Site, ids: list[str]) -> Compared:
    """Return the comparison of two runs, given their ids."""
    found = compare_two(*(site.runs.folder(name) for name in ids))
    runs = [_run(found, name, number) for number, name in enumerate(ids)]
    return Compared(
        metric=found.metric,
        split=found.split,
        rows=found.rows,
        groups=found.groups,
        first=runs[0],
        second=runs[1],
        difference=_difference(found.scores[1].difference),
        leak_free_difference=_difference(found.leak_free[1].difference) if found.leak_free else None,
        changes=list(found.changes),
    )


def _run(found: TwoRuns, name: str, number: int) -> ComparedRun:
    score, cost = found.scores[number], found.costs[number]
    leak_free = found.leak_free[number].mean if found.leak_free else None
    return ComparedRun(
        id=name,
        score=score.mean,
        std=score.std,
        low=score.low,
        high=score.high,
        leak_free=leak_free,
        train_seconds=cost.train_seconds,
        flops=cost.flops,
    )


def _difference(found: Difference | None) -> TestedDifference:
    assert found is not None
    return TestedDifference(
        mean=found.mean,
        low=found.low,
        high=found.high,
        p_value=found.p_value,
        p_runs=found.p_runs,
        clear=found.is_significant,
    )
