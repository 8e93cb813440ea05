"""The table over what is finished of a comparison that is not to go on; nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from endtask.compare.comparison import Comparison, check_comparison
from endtask.compare.gather import gather
from endtask.compare.outcome import Outcome
from endtask.compare.page import write_page
from endtask.compare.plan import make_plan
from endtask.compare.record import open_record, read_record
from endtask.compare.results import write_results
from endtask.compare.work import Work
from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.lock import run_lock
from endtask.pipeline.run import Run
from endtask.reporting.format import plural


def judge_finished(
    settings: Settings,
    comparison: Comparison | Mapping[str, Any],
    *,
    results: Path | None = None,
    where: str = "comparison",
) -> Outcome:
    """Test the runs that are finished in the folder `settings.output_dir`, and write the page and the file `results`.

    Needs the task, and neither the corpus nor a device. What the folder was asked for stays, so that `compare` can
    still go on with it. `where` names the origin of the comparison in messages.
    """
    if not isinstance(comparison, Comparison):
        comparison = check_comparison(comparison, where)
    folder = Run(settings).folder
    read_record(folder)  # or there is nothing to judge
    work = Work(make_plan(settings, comparison, where), folder, reads_corpus=False)
    with run_lock(folder):
        asked = open_record(folder, work.plan)
        work.refuse_other_task()
        _refuse_nothing_finished(gather(work, asked, comparison, tested=False, work_out=False), work)
        outcome = gather(work, asked, comparison, tested=True)
        read_record(folder).with_outcome(outcome.statistics())
        write_page(outcome)
        if results is not None:
            write_results(outcome, results)
    return outcome


def _refuse_nothing_finished(outcome: Outcome, work: Work) -> None:
    if outcome.has_trained_runs:
        return
    runs, failures = len(work.runs), sum(len(row.failures) for row in outcome.rows)
    failed = f", {plural(failures, 'run')} failed" if failures else ""
    raise InputError(
        f"no run of {runs} is finished{failed}: there is nothing to judge",
        path=work.folder,
        hint=f"endtask compare {work.folder} goes on and trains them",
    )
