"""From the folders of the runs to the table."""

from __future__ import annotations

from endtask.compare.cell import Cell
from endtask.compare.comparison import Comparison
from endtask.compare.outcome import Outcome, Row, Statistics, plain_row, with_holm
from endtask.compare.record import Record
from endtask.compare.scored import Judged, Scored, read_run, scored_baseline
from endtask.compare.untrained import untrained_baseline
from endtask.compare.work import Work
from endtask.evaluate.measures import measure_of

Runs = dict[str, tuple[Scored, ...]]


def gather(work: Work, record: Record, comparison: Comparison, *, tested: bool, untrained: bool = True) -> Outcome:
    """The table of all runs that got as far as a score; with intervals and tests if `tested`, which take a while.

    Baselines that need no run are scored unless `untrained` is false.
    """
    plan = work.plan
    judged = Judged.of(work.task, measure_of(work.task, plan.settings.evaluate), comparison.by)
    rows: dict[str, Row] = {}
    runs: Runs = {}
    for cell in plan.cells:
        runs[cell.name] = _runs_of(cell, work, judged, comparison)
        failures = _failures_of(cell, work, record, runs[cell.name])
        rows[cell.name] = Row(cell.name, cell.is_baseline, cell.differs(plan.settings), cell.note, failures=failures)
    for name in plan.untrained if untrained else ():
        baseline = untrained_baseline(name, work.task, judged.measure, work.folder, comparison.by)
        runs[name] = (scored_baseline(baseline),)
        rows[name] = Row(name, True, {}, baseline.description)
    table = tuple(plain_row(rows[name], runs[name], judged) for name in plan.names if name in rows)
    if tested:
        table = _with_tests(table, runs, judged, plan.against, record)
    return Outcome(work.folder, judged, plan.against, table, runs, tested)


def _runs_of(cell: Cell, work: Work, judged: Judged, comparison: Comparison) -> tuple[Scored, ...]:
    found = [read_run(run, judged, comparison.by) for run in cell.runs(work.folder)]
    return tuple(run for run in found if run is not None)


def _failures_of(cell: Cell, work: Work, record: Record, scored: tuple[Scored, ...]) -> tuple[str, ...]:
    """Why runs failed, but for those that got to a score since: the user may have tried them again on their own."""
    done = {run.seed for run in scored}
    left = [run.key for run in cell.runs(work.folder) if run.seed not in done]
    return tuple(record.failures[key] for key in left if key in record.failures)


def _with_tests(rows: tuple[Row, ...], runs: Runs, judged: Judged, against: str, record: Record) -> tuple[Row, ...]:
    known = {row["mark"]: row for row in (record.outcome or {}).get("rows", [])}
    statistics = Statistics(judged, runs[against], known)
    return with_holm([statistics.row(row, runs[row.name]) if row.runs else row for row in rows])
