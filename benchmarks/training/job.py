"""The measurements of one engine in a process of its own: `python -m benchmarks.training.job JSON`."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec

from benchmarks.job import Row, work
from benchmarks.results_file import this_machine
from benchmarks.training.cases import COMPILED, CPU_THREADS, MATMUL, OURS, REFERENCE, TRAINER, Case
from benchmarks.training.inputs import Bench


def run_case(case: Case, bench: Bench) -> Row:
    """Train, and return the figures with the machine and the libraries: a file may come from two machines."""
    import torch

    from benchmarks.training.ours import ours
    from benchmarks.training.peers import compiled_trainer, matmul, reference, trainer

    if case.device == "cpu":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPU_THREADS])
        torch.set_num_threads(CPU_THREADS)
    # By descriptors, the last batches of short runs are lost with the worker that made them.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    engines = {OURS: ours, MATMUL: matmul, REFERENCE: reference, TRAINER: trainer, COMPILED: compiled_trainer}
    row = engines[case.engine](case, bench)
    if "tokens" in row:
        row["tokens_per_second"] = round(row["tokens"] / row["seconds"], 1)
    machine = this_machine()
    libraries = {name: version(name) for name in ("torch", "transformers", "accelerate") if find_spec(name)}
    where = machine.gpu if case.device == "cuda" else machine.cpu
    return {**row, "machine": where, "threads": torch.get_num_threads(), **libraries}


if __name__ == "__main__":
    work(Case, Bench, run_case)
