"""All measurements of one engine, in a process of its own, told what to do by a line of JSON.

    python -m benchmarks.training.job JSON

Each finished measurement is a line of JSON in `rows`; what comes after it may break without harming it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec

from benchmarks.job import Job, forget_last_case, peak_memory
from benchmarks.training.cases import COMPILED, CPU_THREADS, MATMUL, OURS, REFERENCE, TRAINER, Case, Row
from benchmarks.training.inputs import Bench

Engine = Callable[[Case, Bench], Row]
_VERSIONED = ("torch", "transformers", "accelerate")


def run_job(job: Job[Case, Bench]) -> None:
    """Measure case by case."""
    import torch.multiprocessing

    # By descriptors, the last batches of short runs are lost with the worker that made them.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    for case in job.cases:
        job.keep(run_case(case, job.bench))


def run_case(case: Case, bench: Bench) -> Row:
    """The figures of one case."""
    import torch

    torch._dynamo.reset()  # each case compiles for its own shapes, as it would alone
    forget_last_case(case.device)
    statistics = engine_named(case.engine)(case, bench)
    if "tokens" in statistics:
        statistics["tokens_per_second"] = round(statistics["tokens"] / statistics["seconds"], 1)
    return {**asdict(case), **statistics, **peak_memory(case.device), **_surroundings(case)}


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
    job = Job.from_json(sys.argv[1], Case, Bench)
    if job.cases[0].device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPU_THREADS])
        import torch

        torch.set_num_threads(CPU_THREADS)
    run_job(job)


if __name__ == "__main__":
    main()
