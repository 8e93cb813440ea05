"""Starts one process per engine and collects its rows, whatever becomes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.training.cases import CPU_THREADS, Case, Row
from benchmarks.training.inputs import Bench
from benchmarks.training.job import Job

_LONGEST_REASON = 300


def measure(cases: list[Case], bench: Bench, seconds: float) -> list[Row]:
    """Rows of all cases; one that failed or got no time says why.

    After a case that broke the process, a fresh process goes on with the next.
    """
    deadline = time.monotonic() + seconds
    log_of(bench, cases[0]).unlink(missing_ok=True)
    rows: list[Row] = []
    while len(rows) < len(cases):
        left = cases[len(rows) :]
        if time.monotonic() >= deadline:
            return rows + [failure(case, f"not done within {seconds:.0f} s") for case in left]
        finished, code = _run(Job(tuple(left), bench, bench.scratch / "rows.jsonl"), deadline)
        rows += finished
        if code is not None and len(finished) < len(left):
            rows.append(failure(left[len(finished)], _reason(code, log_of(bench, left[0]))))
    return rows


def failure(case: Case, reason: str) -> Row:
    """The row of a case that gave no figures."""
    return {**asdict(case), "error": reason}


def log_of(bench: Bench, case: Case) -> Path:
    """Where an engine's own output goes."""
    return bench.scratch / f"{case.engine.replace(' ', '-')}-{case.device}.log"


def _run(job: Job, deadline: float) -> tuple[list[Row], int | None]:
    """The rows a process made and its exit status, None where it ran out of time."""
    job.bench.scratch.mkdir(parents=True, exist_ok=True)
    job.rows.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.training.job", job.to_json()]
    with open(log_of(job.bench, job.cases[0]), "ab") as log:
        process = subprocess.Popen(
            command, env=_environment(job.cases[0]), stdout=log, stderr=log, start_new_session=True
        )
        code = _wait(process, deadline - time.monotonic())
    lines = job.rows.read_text(encoding="utf-8").splitlines() if job.rows.exists() else []
    return [json.loads(line) for line in lines], code


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for the end, or make one; the data workers of a process end with it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment(case: Case) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = {"OMP_NUM_THREADS": str(CPU_THREADS)} if case.device == "cpu" else {}
    return {**os.environ, **offline, **threads}


def _reason(code: int, log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f"exit status {code}: {lines[-1] if lines else 'no output'}"[:_LONGEST_REASON]
