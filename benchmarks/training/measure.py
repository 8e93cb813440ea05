"""Starts one process per engine and collects its rows, whatever becomes of it."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.job import Job, failure
from benchmarks.training.cases import CPU_THREADS, Case, Row
from benchmarks.training.inputs import Bench

_LONGEST_REASON = 300


def measure(cases: list[Case], bench: Bench, seconds: float) -> list[Row]:
    """Rows of all cases; one that failed or got no time says why.

    After a case that broke the process, a fresh process goes on with the next.
    """
    deadline = time.monotonic() + seconds
    log = log_of(bench, cases[0])
    log.unlink(missing_ok=True)
    threads = {"OMP_NUM_THREADS": str(CPU_THREADS)} if cases[0].device == "cpu" else {}
    rows: list[Row] = []
    while len(rows) < len(cases):
        left = cases[len(rows) :]
        if time.monotonic() >= deadline:
            return rows + [failure(case, f"not done within {seconds:.0f} s") for case in left]
        job = Job(tuple(left), bench, bench.scratch / "rows.jsonl")
        finished, code = job.run("benchmarks.training.job", log, deadline - time.monotonic(), threads)
        rows += finished
        if code is not None and len(finished) < len(left):
            rows.append(failure(left[len(finished)], _reason(code, log)))
    return rows


def log_of(bench: Bench, case: Case) -> Path:
    """Where an engine's own output goes."""
    return bench.scratch / f"{case.engine.replace(' ', '-')}-{case.device}.log"


def _reason(code: int, log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"exit status {code}: {lines[-1] if lines else 'no output'}"[:_LONGEST_REASON]
