"""Starts one process per engine and collects its rows, whatever becomes of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.job import Job, failure
from benchmarks.selection.cases import Case, Row
from benchmarks.selection.inputs import Bench


def measure(cases: list[Case], bench: Bench, seconds: float) -> list[Row]:
    """Rows of all cases; those that got no time, or whose process ended before them, say so."""
    if seconds <= 0:
        return [failure(case, "no time was left") for case in cases]
    log = log_of(bench, cases[0])
    log.unlink(missing_ok=True)
    rows, code = Job(tuple(cases), bench, bench.scratch / "rows.jsonl").run("benchmarks.selection.job", log, seconds)
    reason = f"not done within {seconds:.0f} s" if code is None else f"exit status {code}"
    return rows + [failure(case, reason) for case in cases[len(rows) :]]


def log_of(bench: Bench, case: Case) -> Path:
    """Where an engine's own output goes."""
    return bench.scratch / f"{case.engine.replace(' ', '-')}.log"
