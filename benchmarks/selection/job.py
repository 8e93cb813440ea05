"""Run the measurements of an engine in a process of its own: `python -m benchmarks.selection.job JSON`."""

from __future__ import annotations

from benchmarks.job import Row, run_job
from benchmarks.selection.cases import (
    AGREEMENT,
    ENDTASK,
    ENDTASK_SHORT,
    KRONFLUENCE,
    MATMUL,
    PER_EXAMPLE,
    REFERENCE,
    Case,
)
from benchmarks.selection.inputs import Setup


def run_case(case: Case, setup: Setup) -> Row:
    """Run the engine of a case and return its results."""
    from benchmarks.selection.endtask_engine import agreement, score_candidates
    from benchmarks.selection.peers import kronfluence, per_example, reference

    engines = {ENDTASK: score_candidates, ENDTASK_SHORT: score_candidates, AGREEMENT: agreement, REFERENCE: reference}
    engines |= {PER_EXAMPLE: per_example, KRONFLUENCE: kronfluence, MATMUL: _matmul}
    return engines[case.engine](case, setup)


def _matmul(case: Case, setup: Setup) -> Row:
    from benchmarks.training.cases import Case as TrainingCase
    from benchmarks.training.inputs import Setup as TrainingSetup
    from benchmarks.training.peers import matmul

    shape = TrainingCase(MATMUL, case.size, "full", case.batch, case.device)
    return matmul(shape, TrainingSetup(setup.texts, setup.scratch, 1, 1))


if __name__ == "__main__":
    run_job(Case, Setup, run_case)
