"""Run one measurement: an engine in a process of its own, on two cores.

    python -m benchmarks.retrieval.job JSON

The clock starts after imports and compilation, except in a first run (`cold`): then it starts with the process, and
nothing is compiled yet.
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

from benchmarks.retrieval.engines import ENGINES, THREADS, Engine, EngineResult
from benchmarks.retrieval.inputs import read_queries
from endtask.io.atomic import atomic_file, write_json
from endtask.progress import set_quiet

SAMPLE = 100
"""The number of queries whose rankings are stored, to compare engines."""

_WARM_TEXTS = ("Retrieval finds text.", "Zürich, 東京 and words.", "Some more words to find.", "One last text.")


@dataclass(frozen=True)
class Job:
    """A measurement with the files of its results; `scratch` is an empty folder."""

    engine: str
    paths: tuple[str, ...]
    queries: str
    top_k: int
    cold: bool
    scratch: str
    outcome: str
    rankings: str

    def to_json(self) -> str:
        """Return the command-line argument that starts this job."""
        return json.dumps(asdict(self))


def run_job(job: Job) -> None:
    """Run the engine, and write the seconds and a sample of the rankings."""
    engine = ENGINES[job.engine]
    queries = read_queries(Path(job.queries))
    scratch = Path(job.scratch)
    for name in ("warm", "measured"):
        (scratch / name).mkdir()
    if not job.cold:
        warm_up(engine, scratch)
    start = process_start() if job.cold else time.time()
    result = engine(job.paths, queries, job.top_k, scratch / "measured")
    seconds = time.time() - start
    _save_sample(result, len(queries), Path(job.rankings))
    write_json(job.outcome, {"seconds": round(seconds, 3), "parts": result.parts, "queries": len(queries)})


def warm_up(engine: Engine, scratch: Path) -> None:
    """Rank a few texts, so that all code of the engine is loaded and compiled."""
    path = scratch / "warm.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in _WARM_TEXTS), encoding="utf-8")
    engine([str(path)], ["words of text", "last Zürich"], 2, scratch / "warm")


def process_start() -> float:
    """Return the wall-clock time at which this process started."""
    after_boot = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - after_boot)


def sampled(count: int) -> list[int]:
    """Return the indices of the queries whose rankings are stored, at equal distances."""
    return sorted({number * count // SAMPLE for number in range(SAMPLE)})


def _save_sample(result: EngineResult, count: int, path: Path) -> None:
    arrays: dict[str, Any] = {}
    for number in sampled(count):
        positions, scores = result.ranking(number)
        arrays[f"positions_{number}"] = np.asarray(positions, dtype=np.int64)
        arrays[f"scores_{number}"] = np.asarray(scores, dtype=np.float64)
    with atomic_file(path) as aside, open(aside, "wb") as file:
        np.savez_compressed(file, **arrays)


def main() -> None:
    """Run the job of the command line."""
    job = json.loads(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    set_quiet(True)
    run_job(Job(**{**job, "paths": tuple(job["paths"])}))


if __name__ == "__main__":
    main()
