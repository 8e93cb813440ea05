"""Starts one process per engine and collects its rows, whatever becomes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.selection.cases import Case, Row
from benchmarks.selection.inputs import Bench
from benchmarks.selection.job import Job


def measure(cases: list[Case], bench: Bench, seconds: float) -> list[Row]:
    """Rows of all cases; those that got no time, or whose process ended before them, say so."""
    if seconds <= 0:
        return [failure(case, "no time was left") for case in cases]
    job = Job(tuple(cases), bench, bench.scratch / "rows.jsonl")
    bench.scratch.mkdir(parents=True, exist_ok=True)
    job.rows.unlink(missing_ok=True)
    code = _run(job, seconds)
    lines = job.rows.read_text(encoding="utf-8").splitlines() if job.rows.exists() else []
    rows: list[Row] = [json.loads(line) for line in lines]
    reason = f"not done within {seconds:.0f} s" if code is None else f"exit status {code}"
    return rows + [failure(case, reason) for case in cases[len(rows) :]]


def failure(case: Case, reason: str) -> Row:
    """The row of a case that gave no figures."""
    return {**asdict(case), "error": reason}


def log_of(bench: Bench, case: Case) -> Path:
    """Where an engine's own output goes."""
    return bench.scratch / f"{case.engine.replace(' ', '-')}.log"


def _run(job: Job, seconds: float) -> int | None:
    """The exit status of a process, None where it ran out of time."""
    command = [sys.executable, "-m", "benchmarks.selection.job", job.to_json()]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with open(log_of(job.bench, job.cases[0]), "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None
