"""All measurements of one engine, in a process of its own, told what to do by a line of JSON.

    python -m benchmarks.training.job JSON

Each finished measurement is a line of JSON in `rows`; what comes after it may break without harming it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.training.cases import COMPILED, CPU_THREADS, MATMUL, OURS, REFERENCE, TRAINER, Case, Row
from benchmarks.training.inputs import Bench

Engine = Callable[[Case, Bench], Row]
_VERSIONED = ("torch", "transformers", "accelerate")


@dataclass(frozen=True)
class Job:
    """What to measure, with what, and where the rows go."""

    cases: tuple[Case, ...]
    bench: Bench
    rows: Path

    def to_json(self) -> str:
        """The line that starts this job."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that such a line tells of."""
        given = json.loads(text)
        bench = given["bench"]
        folders = {name: Path(bench[name]) for name in ("texts", "scratch")}
        return cls(tuple(Case(**case) for case in given["cases"]), Bench(**{**bench, **folders}), Path(given["rows"]))


def run_job(job: Job) -> None:
    """Measure case by case."""
    import torch.multiprocessing

    # By descriptors, the last batches of short runs are lost with the worker that made them.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    for case in job.cases:
        row = run_case(case, job.bench)
        with open(job.rows, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def run_case(case: Case, bench: Bench) -> Row:
    """The figures of one case."""
    import torch

    gc.collect()
    torch._dynamo.reset()  # each case compiles for its own shapes, as it would alone
    if case.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    figures = engine_named(case.engine)(case, bench)
    if "tokens" in figures:
        figures["tokens_per_second"] = round(figures["tokens"] / figures["seconds"], 1)
    if case.device == "cuda":
        figures["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    return {**asdict(case), **figures, **_surroundings(case)}


def engine_named(name: str) -> Engine:
    """The function that trains; only its own libraries are loaded."""
    if name == OURS:
        from benchmarks.training.ours import ours

        return ours
    if name == MATMUL:
        from benchmarks.training.matmul import matmul

        return matmul
    if name == REFERENCE:
        from benchmarks.training.reference import reference

        return reference
    from benchmarks.training.huggingface_trainer import compiled_trainer, trainer

    return {TRAINER: trainer, COMPILED: compiled_trainer}[name]


def _surroundings(case: Case) -> Row:
    """The machine and the libraries, in every row: the two parts of the file come from two machines."""
    import torch

    from benchmarks.results_file import this_machine

    machine = this_machine()
    return {
        "machine": machine.gpu if case.device == "cuda" else machine.cpu,
        "threads": torch.get_num_threads(),
        **{name: version(name) for name in _VERSIONED if find_spec(name)},
    }


def main() -> None:
    """Do the job given on the command line."""
    job = Job.from_json(sys.argv[1])
    if job.cases[0].device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPU_THREADS])
        import torch

        torch.set_num_threads(CPU_THREADS)
    run_job(job)


if __name__ == "__main__":
    main()
