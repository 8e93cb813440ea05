"""Run the measurements of an engine in a process of its own: `python -m benchmarks.training.job JSON`."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec

from benchmarks.job import Row, run_job
from benchmarks.results_file import this_machine
from benchmarks.training.cases import COMPILED, CPU_THREADS, ENDTASK, MATMUL, REFERENCE, TRAINER, Case
from benchmarks.training.inputs import Setup


def run_case(case: Case, setup: Setup) -> Row:
    """Run the engine of a case; return its results with machine and libraries, as a file may come from two machines."""
    import torch

    from benchmarks.training.endtask_engine import train_endtask
    from benchmarks.training.peers import compiled_trainer, matmul, reference, trainer

    if case.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPU_THREADS])
        torch.set_num_threads(CPU_THREADS)
    # Sharing by file descriptors loses the last batches of short runs when their worker exits.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    engines = {
        ENDTASK: train_endtask,
        MATMUL: matmul,
        REFERENCE: reference,
        TRAINER: trainer,
        COMPILED: compiled_trainer,
    }
    row = engines[case.engine](case, setup)
    if "tokens" in row:
        row["tokens_per_second"] = round(row["tokens"] / row["seconds"], 1)
    machine = this_machine()
    libraries = {name: version(name) for name in ("torch", "transformers", "accelerate") if find_spec(name)}
    processor = machine.gpu if case.device == "cuda" else machine.cpu
    return {**row, "machine": processor, "threads": torch.get_num_threads(), **libraries}


if __name__ == "__main__":
    run_job(Case, Setup, run_case)
