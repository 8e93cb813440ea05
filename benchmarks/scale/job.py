"""Run one measurement in a process of its own, and write its row.

python -m benchmarks.scale.job JSON
torchrun --standalone --nproc-per-node 2 -m benchmarks.scale.job JSON
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.generate_corpus import QUERIES
from endtask.executors.base import Executor
from endtask.io.atomic import write_json
from endtask.progress import set_quiet

PLAIN, RAY, TRAINING, SIDE_BY_SIDE = "plain", "ray", "training", "side by side"
MERGING, LISTING = "merging", "listing"
TOP_K = 100
BATCHES = (32, 256)
"""Texts of a global batch in training: those of the presets `laptop` and `gpu`, roughly."""
_STEPS, _WARMUP = 20, 3
_LENGTH = 128
_OBJECT_STORE = 80_000_000
_BLOCKS, _QUERIES_OF_BLOCK, _PASSAGES, _REPEATS = 4, 4096, 1_000_000, 3


@dataclass(frozen=True)
class Job:
    """A measurement: retrieval over shards of the generated corpus in `data`, or training by some processes.

    Those of training share the batch, but for `side by side`: each is then one process that knows of no other.
    """

    kind: str
    data: str
    shards: int
    processes: int
    scratch: str
    outcome: str
    batch: int = 0

    def to_json(self) -> str:
        """Return the command-line argument that starts this job."""
        return json.dumps(asdict(self))


def retrieval(job: Job) -> dict[str, Any]:
    """Run retrieval as a run does, with the driver in this process."""
    from endtask.config import RetrieveSettings
    from endtask.corpus import Corpus
    from endtask.planning.calibration import measure_retrieval

    folder, data = Path(job.scratch), Path(job.data)
    paths = sorted(data.glob("generated-*.jsonl.zst"))
    texts = [json.loads(line)["text"] for line in (data / QUERIES).read_text(encoding="utf-8").splitlines()]
    executor = _executor(job)
    settings = RetrieveSettings(top_k=TOP_K)
    measure_retrieval(_task(texts), Corpus.read(paths[:1]), settings, folder / "warm", executor)  # compiles, starts
    corpus = Corpus.read(paths[: job.shards])
    measured = measure_retrieval(_task(texts), corpus, settings, folder / "measured", executor)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**asdict(measured), "total": measured.total, "driver_peak_bytes": peak}


def _task(texts: list[str]) -> Any:
    from endtask.records import Example
    from endtask.task import Task

    rows = [Example(str(number), text, "xy"[number % 2]) for number, text in enumerate(texts)]
    held_out = [Example(name, f"{name} has words of no other text", "x") for name in ("dev", "test")]
    return Task.from_examples("generated", {"train": rows, "dev": held_out[:1], "test": held_out[1:]})


def _executor(job: Job) -> Executor:
    if job.kind == PLAIN:
        from endtask.executors.processes import LocalExecutor

        return LocalExecutor(job.processes)
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # that of plain processes
    from ray.cluster_utils import Cluster

    from endtask.executors.ray_cluster import RayExecutor

    node = {"num_cpus": job.processes, "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    return RayExecutor(Cluster(initialize_head=True, head_node_args=node).address)


def merging(job: Job) -> dict[str, Any]:
    """Merge blocks of rankings; return the seconds for each entry, which the simulator takes as a constant."""
    from endtask.retrieval.bm25.rankings import RankedBlock

    blocks = [_random_block(0, seed) for seed in range(_BLOCKS)]
    return _seconds_of_entry(lambda: RankedBlock.merged(blocks, TOP_K), sum(len(block.scores) for block in blocks))


def listing(job: Job) -> dict[str, Any]:
    """List the queries of few passages, for which all rankings are read twice; return the seconds for each entry."""
    from endtask.retrieval.bm25.rankings import Rankings
    from endtask.retrieval.matched_queries import QueryMatches
    from endtask.retrieval.queries import Query

    paths = [Path(job.scratch) / f"block-{number}.npz" for number in range(_BLOCKS)]
    firsts = [number * _QUERIES_OF_BLOCK for number in range(_BLOCKS)]
    for path, first in zip(paths, firsts, strict=True):
        _random_block(first, first).save(path)
    queries = [Query("a text", (str(number),)) for number in range(_BLOCKS * _QUERIES_OF_BLOCK)]
    matches = QueryMatches(Rankings(paths, firsts, len(queries)), queries)
    entries = 2 * len(queries) * TOP_K
    return _seconds_of_entry(lambda: list(matches.by_range([0, _PASSAGES // 1000])), entries)


def _random_block(first: int, seed: int) -> Any:
    import numpy as np

    from endtask.retrieval.bm25.rankings import RankedBlock

    random, entries = np.random.default_rng(seed), _QUERIES_OF_BLOCK * TOP_K
    sizes = np.full(_QUERIES_OF_BLOCK, TOP_K)
    return RankedBlock(first, sizes, random.integers(_PASSAGES, size=entries), random.random(entries))


def _seconds_of_entry(work: Callable[[], object], entries: int) -> dict[str, Any]:
    work()  # compiles
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return {"seconds_of_entry": median(times) / entries, "entries": entries, "total": sum(times)}


def training(job: Job) -> dict[str, Any]:
    """Train by all processes; return the median seconds of a step. The first process writes the row."""
    import endtask
    from endtask.training.optimizer import Optimizer

    times: list[float] = []
    step = Optimizer.step

    def timed(optimizer: Optimizer, factor: float) -> Any:
        result = step(optimizer, factor)
        times.append(time.perf_counter())
        return result

    Optimizer.step = timed  # type: ignore[method-assign, assignment]
    endtask.run(_training_settings(Path(job.data), Path(job.scratch), job.batch), until="pretrain")
    seconds = [later - earlier for earlier, later in pairwise(times)][_WARMUP:]
    return {
        "step_seconds": median(seconds),
        "steps": len(seconds),
        "processes": job.processes,
        "batch": job.batch,
    }


def _training_settings(data: Path, scratch: Path, batch: int) -> dict[str, Any]:
    """Return settings of masked LM on the generated queries."""
    return {
        "preset": "tapt-scratch",
        "output_dir": str(scratch / "run"),
        "task": {"path": str(data / "task")},
        "device": "cpu",
        "threads": 1,
        "budget": f"{_STEPS}steps",
        "distributed": "ddp",
        "tokenizer": {"vocab_size": 8000},
        "model": {"size": "mini"},
        "pretrain": {"batch_size": batch, "max_length": _LENGTH},
    }


def main() -> None:
    """Run the job of the command line."""
    job = Job(**json.loads(sys.argv[1]))
    set_quiet(True)
    measure = {TRAINING: training, SIDE_BY_SIDE: training, MERGING: merging, LISTING: listing}.get(job.kind, retrieval)
    row = measure(job)
    if os.environ.get("RANK", "0") == "0":
        write_json(job.outcome, row)


if __name__ == "__main__":
    main()
