"""One measurement: an engine in a process of its own, on two cores, told what to do by a line of JSON.

    python -m benchmarks.retrieval.job JSON

The clock starts when everything is imported and compiled, unless the job is a first run (`cold`): then it starts with
the process, and nothing is compiled yet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval.engines import ENGINES, THREADS, Engine, Found
from benchmarks.retrieval.inputs import read_queries
from endtask.io.atomic import atomic_file, write_json
from endtask.progress import set_quiet

SAMPLE = 100
"""Queries whose rankings are kept, to compare engines by."""

_WARM_TEXTS = ("Retrieval finds text.", "Zürich, 東京 and words.", "Some more words to find.", "One last text.")


@dataclass(frozen=True)
class Job:
    """What to measure, and where to put what comes of it; `scratch` is empty and the engine's own."""

    engine: str
    paths: tuple[str, ...]
    queries: str
    top_k: int
    cold: bool
    scratch: str
    outcome: str
    rankings: str

    def to_json(self) -> str:
        """The line that starts this job."""
        return json.dumps(asdict(self))


def run_job(job: Job) -> None:
    """Measure, and write seconds and a sample of the rankings."""
    engine = ENGINES[job.engine]
    queries = read_queries(Path(job.queries))
    scratch = Path(job.scratch)
    for name in ("warm", "measured"):
        (scratch / name).mkdir()
    start = process_start() if job.cold else warmed(engine, scratch)
    found = engine(job.paths, queries, job.top_k, scratch / "measured")
    seconds = time.time() - start
    _keep_sample(found, len(queries), Path(job.rankings))
    write_json(job.outcome, {"seconds": round(seconds, 3), "parts": found.parts, "queries": len(queries)})


def warmed(engine: Engine, scratch: Path) -> float:
    """The time after the engine has found something in a few texts, so that all its code is loaded and compiled."""
    path = scratch / "warm.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in _WARM_TEXTS), encoding="utf-8")
    engine([str(path)], ["words of text", "last Zürich"], 2, scratch / "warm")
    return time.time()


def process_start() -> float:
    """When this process was started, as a time of the clock on the wall."""
    after_boot = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


def sampled(count: int) -> list[int]:
    """Numbers of the queries whose rankings are kept: spread evenly."""
    return sorted({number * count // SAMPLE for number in range(SAMPLE)})


def _keep_sample(found: Found, count: int, path: Path) -> None:
    arrays: dict[str, Any] = {}
    for number in sampled(count):
        positions, scores = found.ranking(number)
        arrays[f"positions_{number}"] = np.asarray(positions, dtype=np.int64)
        arrays[f"scores_{number}"] = np.asarray(scores, dtype=np.float64)
    with atomic_file(path) as aside, open(aside, "wb") as file:
        np.savez_compressed(file, **arrays)


def main() -> None:
    """Do the job given on the command line."""
    job = json.loads(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    set_quiet(True)
    run_job(Job(**{**job, "paths": tuple(job["paths"])}))


if __name__ == "__main__":
    main()
