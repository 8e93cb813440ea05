"""Search for better settings: trials under one budget, compared on dev; the best one is then run to its end."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.experiments.record import Record, check_spec, read_record, record_file
from endtask.experiments.search_report import write_search_page
from endtask.experiments.search_strategies import Strategy, budget_per_trial
from endtask.experiments.search_trials import SearchResult, SearchTrial, prepare_base, run_trial
from endtask.io.processes import make_own_folder, run_lock
from endtask.pipeline.run import Run
from endtask.progress import say
from endtask.reporting import format as shown

RECORD = record_file("search")
BASE = "base"
_NOT_IN_SPEC = ("output_dir", "budget")


def search(settings: Settings, strategy: Strategy) -> SearchResult:
    """Do what is left of a search in the folder `settings.output_dir`; `settings.budget` is for all trials together.

    Every trial is a run of its own in `trials/NNN` with an equal share of the budget. Only the best trial on dev looks
    at test, at the end.
    """
    budget = budget_per_trial(settings.budget, strategy.trials)
    folder = Run(settings).folder
    each = settings.model_copy(update={"budget": budget})
    base = Run(_in_folder(each, folder / BASE))
    base.stage_folders()  # missing or unreadable data shows before anything is written
    make_own_folder(folder, RECORD)
    with run_lock(folder):
        metric = measure_of(base.task, settings.evaluate).name
        record = _open_record(folder, _spec(settings, strategy, str(budget), metric))
        prepare_base(base, strategy.keys, may_redo=not record.trials)
        for number in range(len(SearchResult.from_record(record).finished), strategy.trials):
            record = _do_trial(record, strategy, number, each, base)
        return _finish(record, each)


def _spec(settings: Settings, strategy: Strategy, budget: str, metric: str) -> dict[str, Any]:
    return {
        **strategy.to_dict(),
        "trial_count": strategy.trials,
        "budget": str(settings.budget),
        "budget_per_trial": budget,
        "metric": metric,
        "settings": settings.model_dump(mode="json", exclude=set(_NOT_IN_SPEC)),
    }


def _open_record(folder: Path, spec: dict[str, Any]) -> Record:
    """Return the record in the folder, which must have the same spec once it has a trial; else a new one."""
    spec = json.loads(json.dumps(spec))  # as it will be read back
    found = read_record(folder, "search") if (folder / RECORD).exists() else None
    if found is None or not found.trials:
        return Record(folder, "search", spec).save()
    check_spec(folder, found.spec, spec)
    return found


def _do_trial(record: Record, strategy: Strategy, number: int, settings: Settings, base: Run) -> Record:
    result = SearchResult.from_record(record)
    if number == len(result.trials):
        # Stored before the work, so that a resumed trial continues with the same values.
        new = SearchTrial(number, strategy.values(number, result.finished))
        record = record.with_trial(new.key, asdict(new))
        result = SearchResult.from_record(record)
    trial = result.trials[number]
    say(f"trial {number + 1} of {strategy.trials}: {shown.in_words(trial.values)}")
    earlier = [record.folder / other.folder for other in result.finished]
    done = run_trial(_settings_of(record.folder, trial, settings), trial, base, earlier)
    record = record.with_trial(done.key, asdict(done))
    write_search_page(SearchResult.from_record(record))
    return record


def _finish(record: Record, settings: Settings) -> SearchResult:
    result = SearchResult.from_record(record)
    best = result.best
    if best is None:
        raise InputError(f"no trial trained to its end; the first: {result.trials[0].failure}", path=record.folder)
    if record.outcome is None:
        say(f"trial {best.number + 1} is the best on dev; running it to its end in {best.folder}")
        ended = Run(_settings_of(record.folder, best, settings)).go()
        winner = {"number": best.number, "folder": best.folder, **ended.stages["evaluate"]}
        result = SearchResult.from_record(record.with_outcome(winner))
    write_search_page(result)
    return result


def _settings_of(folder: Path, trial: SearchTrial, settings: Settings) -> Settings:
    return _in_folder(with_values(settings, trial.values, f"trial {trial.number + 1}"), folder / trial.folder)


def _in_folder(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"output_dir": str(folder)})
