"""The measurements of one engine in a process of its own: `python -m benchmarks.selection.job JSON`."""

from __future__ import annotations

from benchmarks.job import Row, work
from benchmarks.selection.cases import AGREEMENT, KRONFLUENCE, MATMUL, OURS, OURS_SHORT, PER_EXAMPLE, REFERENCE, Case
from benchmarks.selection.inputs import Bench


def run_case(case: Case, bench: Bench) -> Row:
    """Score, and return the figures."""
    from benchmarks.selection.ours import agreement, ours
    from benchmarks.selection.peers import kronfluence, per_example, reference

    engines = {OURS: ours, OURS_SHORT: ours, AGREEMENT: agreement, REFERENCE: reference, PER_EXAMPLE: per_example}
    return {**engines, KRONFLUENCE: kronfluence, MATMUL: _matmul}[case.engine](case, bench)


def _matmul(case: Case, bench: Bench) -> Row:
    from benchmarks.training.cases import Case as TrainingCase
    from benchmarks.training.inputs import Bench as TrainingBench
    from benchmarks.training.peers import matmul

    shape = TrainingCase(MATMUL, case.size, "full", case.batch, case.device)
    return matmul(shape, TrainingBench(bench.texts, bench.scratch, 1, 1))


if __name__ == "__main__":
    work(Case, Bench, run_case)
