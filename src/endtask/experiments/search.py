"""Search for better settings: compare trials on dev under one budget, then finish the best trial.

Trials are runs that stop before test; stages that they have in common run once.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError, TrainingError
from endtask.evaluation.task_metrics import measure_of
from endtask.experiments.record import Record, check_spec, read_record
from endtask.experiments.search_report import write_search_page
from endtask.experiments.search_result import SearchResult, SearchTrial, Tree
from endtask.experiments.search_space import Strategy, budget_per_trial
from endtask.experiments.stage_reuse import check_unchanged, is_reused, reuse_data, reuse_stages
from endtask.experiments.variants import check_no_storage
from endtask.io.processes import make_output_folder, run_lock
from endtask.io.run_layout import record_file
from endtask.pipeline.run import Run
from endtask.progress import say
from endtask.reporting import format as shown
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import seed_rows

RECORD = record_file("search")
LAST_STAGE = "finetune"
"""The last stage of trials, which scores dev and not test."""
_NOT_IN_SPEC = ("output_dir", "budget")


def search(settings: Settings, strategy: Strategy) -> SearchResult:
    """Run or resume a search in the folder `settings.output_dir`; `settings.budget` is for all trials together.

    Every trial is a run in `trials/NNN` with an equal share of the budget. Only the best trial on dev is scored on
    test, at the end.
    """
    check_no_storage(settings)
    budget = budget_per_trial(settings.budget, strategy.trials)
    folder = Run(settings).folder
    trial_settings = settings.model_copy(update={"budget": budget})
    source = Run(trial_settings)  # the trials reuse its task and corpus
    source.stage_folders()  # raises for missing or unreadable data before anything is written
    make_output_folder(folder, RECORD)
    with run_lock(folder):
        metric = measure_of(source.task, settings.evaluate).name
        record = _open_record(folder, _spec(settings, strategy, str(budget), metric))
        for trial in SearchResult.from_record(record).trials:
            check_unchanged(_run_of(folder, trial, trial_settings, source))
        for number in range(len(SearchResult.from_record(record).finished), strategy.trials):
            record = _run_trial(record, strategy, number, trial_settings, source)
        return _finish(record, trial_settings, source)


def _spec(settings: Settings, strategy: Strategy, budget: str, metric: str) -> Tree:
    return {
        **strategy.to_dict(),
        "trial_count": strategy.trials,
        "budget": str(settings.budget),
        "budget_per_trial": budget,
        "metric": metric,
        "settings": settings.model_dump(mode="json", exclude=set(_NOT_IN_SPEC)),
    }


def _open_record(folder: Path, spec: Tree) -> Record:
    """Return the record in the folder, or a new record if it has no trial. Raise `InputError` for another spec."""
    spec = json.loads(json.dumps(spec))  # as `read_record` will read it
    record = read_record(folder, "search") if (folder / RECORD).exists() else None
    if record is None or not record.trials:
        return Record(folder, "search", spec).save()
    check_spec(folder, record.spec, spec)
    return record


def _run_of(folder: Path, trial: SearchTrial, settings: Settings, source: Run) -> Run:
    values = {**trial.values, "output_dir": str(folder / trial.folder)}
    run = Run(with_values(settings, values, f"trial {trial.number + 1}"))
    reuse_data(source, run)
    return run


def _run_trial(record: Record, strategy: Strategy, number: int, settings: Settings, source: Run) -> Record:
    result = SearchResult.from_record(record)
    if number == len(result.trials):
        # Store the values before the run, so that a resumed trial has the same values.
        new = SearchTrial(number, strategy.values(number, result.finished))
        record = record.with_trial(new.key, asdict(new))
        result = SearchResult.from_record(record)
    trial = result.trials[number]
    say(f"trial {number + 1} of {strategy.trials}: {shown.in_words(trial.values)}")
    run = _run_of(record.folder, trial, settings, source)
    try:
        # Equal trials train once.
        reuse_stages(run, [record.folder / other.folder for other in result.finished])
        run.execute(until=LAST_STAGE)
    except TrainingError as error:  # such as a learning rate that is too high: the result of this trial
        trial = replace(trial, failure=str(error))
    trial = with_result(trial, run.folder)
    if not trial.is_finished:
        raise InputError("no dev score to compare the trials by", path=run.folder)
    record = record.with_trial(trial.key, asdict(trial))
    write_search_page(SearchResult.from_record(record))
    return record


def with_result(trial: SearchTrial, folder: Path) -> SearchTrial:
    """Return the trial with its dev scores and the cost of its stages, without reused stages."""
    run = RunFolder(folder)
    cost = total_cost([cost for cost in stage_costs(run) if not is_reused(folder / cost.stage)])
    return replace(
        trial,
        dev=() if trial.failure else tuple(row.dev for row in seed_rows(run)),
        seconds=cost["seconds"],
        tokens=int(cost["tokens"]),
        flops=cost["flops"],
    )


def _finish(record: Record, settings: Settings, source: Run) -> SearchResult:
    result = SearchResult.from_record(record)
    best = result.best
    if best is None:
        raise InputError(f"no trial trained to its end; the first: {result.trials[0].failure}", path=record.folder)
    if record.outcome is None:
        say(f"trial {best.number + 1} is the best on dev; running it to its end in {best.folder}")
        finished = _run_of(record.folder, best, settings, source).execute()
        winner = {"number": best.number, "folder": best.folder, **finished.stages["evaluate"]}
        result = SearchResult.from_record(record.with_outcome(winner))
    write_search_page(result)
    return result
