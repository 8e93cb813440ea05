"""From the folders of the runs to the table."""

from __future__ import annotations

from dataclasses import replace

from endtask.compare.cell import Cell, is_fine_tuned_as_it_is
from endtask.compare.comparison import Comparison
from endtask.compare.outcome import Outcome, Row, Statistics, plain_row, with_holm
from endtask.compare.record import Record
from endtask.compare.scored import Judged, Scored, read_run, scored_baseline
from endtask.compare.untrained import known_baseline, untrained_baseline
from endtask.compare.work import Work
from endtask.evaluation.task_metrics import measure_of

Runs = dict[str, tuple[Scored, ...]]


def gather(work: Work, record: Record, comparison: Comparison, *, tested: bool, work_out: bool = True) -> Outcome:
    """The table of all runs that got as far as a score; with intervals and tests if `tested`, which take a while.

    Baselines that need no run and that no earlier call worked out are left out unless `work_out`.
    """
    plan, task = work.plan, work.task
    judged = Judged.of(task, measure_of(task, plan.settings.evaluate), comparison.by)
    rows: dict[str, Row] = {}
    runs: Runs = {}
    for cell in plan.cells:
        runs[cell.name] = _runs_of(cell, work, judged, comparison)
        failures = _failures_of(cell, work, record, runs[cell.name])
        differs, has_stage_one = cell.differs(plan.settings), not is_fine_tuned_as_it_is(cell.settings)
        row = Row(cell.name, cell.is_baseline, differs, cell.note, failures=failures, has_stage_one=has_stage_one)
        rows[cell.name] = replace(row, tokenizer=cell.learned_tokenizer(work.folder))
    find = untrained_baseline if work_out else known_baseline
    for name in plan.untrained:
        baseline = find(name, task, judged.measure, work.folder, comparison.by)
        if baseline is not None:
            runs[name] = (scored_baseline(baseline),)
            rows[name] = Row(name, True, {}, baseline.description)
    table = tuple(plain_row(rows[name], runs[name], judged) for name in plan.names if name in rows)
    if tested:
        table = _with_tests(table, runs, judged, plan.against, record)
    return Outcome(work.folder, judged, plan.against, table, runs, tested, _missing(work, record, runs))


def _runs_of(cell: Cell, work: Work, judged: Judged, comparison: Comparison) -> tuple[Scored, ...]:
    found = [read_run(run, judged, comparison.by) for run in cell.runs(work.folder)]
    return tuple(run for run in found if run is not None)


def _failures_of(cell: Cell, work: Work, record: Record, scored: tuple[Scored, ...]) -> tuple[str, ...]:
    """Why runs failed, but for those that got to a score since: the user may have tried them again on their own."""
    done = {run.seed for run in scored}
    left = [run.key for run in cell.runs(work.folder) if run.seed not in done]
    return tuple(record.failures[key] for key in left if key in record.failures)


def _missing(work: Work, record: Record, runs: Runs) -> tuple[str, ...]:
    """What has no score and may still get one, runs in the order in which they are trained."""
    scored = {(name, run.seed) for name, found in runs.items() for run in found}
    left = [run.key for run in work.runs if (run.cell.name, run.seed) not in scored and run.key not in record.failures]
    return (*left, *(name for name in work.plan.untrained if name not in runs))


def _with_tests(rows: tuple[Row, ...], runs: Runs, judged: Judged, against: str, record: Record) -> tuple[Row, ...]:
    known = {row["mark"]: row for row in (record.outcome or {}).get("rows", [])}
    statistics = Statistics(judged, runs[against], known)
    return with_holm([statistics.row(row, runs[row.name]) if row.runs else row for row in rows])
