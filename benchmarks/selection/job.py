"""Measurements that share a process of their own, told what to do by a line of JSON.

    python -m benchmarks.selection.job JSON

Each finished measurement is a line of JSON in `rows`; one that breaks says why, and the next goes on.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from benchmarks.job import Job, failure, forget_last_case, peak_memory
from benchmarks.selection.cases import (
    AGREEMENT,
    KRONFLUENCE,
    MATMUL,
    OURS,
    OURS_SHORT,
    PER_EXAMPLE,
    REFERENCE,
    Case,
    Row,
)
from benchmarks.selection.inputs import Bench

Engine = Callable[[Case, Bench], Row]
_LONGEST_REASON = 300


def run_job(job: Job[Case, Bench]) -> None:
    """Measure case by case."""
    for case in job.cases:
        print(f"{time.strftime('%H:%M:%S')} {case}", flush=True)
        row = run_case(case, job.bench)
        print(f"{time.strftime('%H:%M:%S')} {row}", flush=True)
        job.keep(row)


def run_case(case: Case, bench: Bench) -> Row:
    """The figures of one case, or why there are none."""
    forget_last_case(case.device)
    try:
        row = {**asdict(case), **_finite(engine_named(case.engine)(case, bench))}
    except Exception as error:  # a peer may fail in any way: for want of memory, by its version
        row = failure(case, f"{type(error).__name__}: {error}".splitlines()[0][:_LONGEST_REASON])
        _print_trace(error)
    return {**row, **peak_memory(case.device)}


def _finite(statistics: Row) -> Row:
    """The figures, if all of them are numbers."""
    strange = [name for name, figure in statistics.items() if isinstance(figure, float) and not math.isfinite(figure)]
    if strange:
        raise ArithmeticError(f"not a number: {', '.join(strange)}")
    return statistics


def engine_named(name: str) -> Engine:
    """The function that measures; only its own libraries are loaded."""
    if name in (OURS, OURS_SHORT, AGREEMENT):
        from benchmarks.selection.agreement import agreement
        from benchmarks.selection.ours import ours

        return agreement if name == AGREEMENT else ours
    if name == REFERENCE:
        from benchmarks.selection.reference import reference

        return reference
    if name == PER_EXAMPLE:
        from benchmarks.selection.per_example import per_example

        return per_example
    from benchmarks.selection.kronfluence_way import kronfluence

    return {MATMUL: _matmul, KRONFLUENCE: kronfluence}[name]


def _matmul(case: Case, bench: Bench) -> Row:
    from benchmarks.training.cases import Case as TrainingCase
    from benchmarks.training.inputs import Bench as TrainingBench
    from benchmarks.training.matmul import matmul

    shape = TrainingCase(MATMUL, case.size, "full", case.batch, case.device)
    return matmul(shape, TrainingBench(bench.texts, bench.scratch, 1, 1))


def _print_trace(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)


def main() -> None:
    """Do the job given on the command line."""
    run_job(Job.from_json(sys.argv[1], Case, Bench))


if __name__ == "__main__":
    main()
