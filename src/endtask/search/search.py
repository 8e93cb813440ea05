"""A search: trials one after the other under one budget, judged on dev; the best one is then run to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.io.lock import make_own_folder, run_lock
from endtask.pipeline.run import Run
from endtask.progress import say
from endtask.reporting import format as shown
from endtask.search.page import write_page
from endtask.search.plan import Plan, share_of
from endtask.search.record import NOT_ASKED, SEARCH_FILE, Record, Trial, open_record
from endtask.search.trials import prepare_base, run_trial

BASE = "base"


def search(settings: Settings, plan: Plan) -> Record:
    """Do what is left of a search in the folder `settings.output_dir`; `settings.budget` is for all trials together.

    Every trial is a run of its own in `trials/NNN` with an equal share of the budget. None of them looks at test;
    only the best on dev does, at the end.
    """
    share = share_of(settings.budget, plan.trials)
    folder = Run(settings).folder
    each = settings.model_copy(update={"budget": share})
    base = Run(_placed(each, folder / BASE))
    base.stage_folders()  # data that is missing or unreadable is met before anything is written
    make_own_folder(folder, SEARCH_FILE)
    with run_lock(folder):
        record = open_record(folder, _asked(settings, plan, str(share), measure_of(base.task, settings.evaluate).name))
        prepare_base(base, plan.keys, may_redo=not record.trials)
        for number in range(len(record.finished), plan.trials):
            record = _do_trial(record, plan, number, each, base)
        return _end(record, each)


def _asked(settings: Settings, plan: Plan, share: str, metric: str) -> dict[str, Any]:
    return {
        **plan.describe(),
        "trials_asked": plan.trials,
        "budget": str(settings.budget),
        "budget_per_trial": share,
        "metric": metric,
        "settings": settings.model_dump(mode="json", exclude=set(NOT_ASKED)),
    }


def _do_trial(record: Record, plan: Plan, number: int, settings: Settings, base: Run) -> Record:
    if number == len(record.trials):
        # Written before the work, so that a resumed trial goes on with the values it began with.
        record = record.with_trial(Trial(number, plan.values(number, record.finished)))
    trial = record.trials[number]
    say(f"trial {number + 1} of {plan.trials}: {shown.in_words(trial.values)}")
    earlier = [record.folder / other.folder for other in record.finished]
    done = run_trial(_settings_of(record, trial, settings), trial, base, earlier)
    record = record.with_trial(done)
    write_page(record)
    return record


def _end(record: Record, settings: Settings) -> Record:
    best = record.best
    if best is None:
        raise InputError(f"no trial trained to its end; the first: {record.trials[0].failure}", path=record.folder)
    if record.winner is None:
        say(f"trial {best.number + 1} was the best on dev; it is run to its end in {best.folder}")
        result = Run(_settings_of(record, best, settings)).go()
        record = record.with_winner({"number": best.number, "folder": best.folder, **result.stages["evaluate"]})
    write_page(record)
    return record


def _settings_of(record: Record, trial: Trial, settings: Settings) -> Settings:
    folder = record.folder / trial.folder
    return _placed(with_values(settings, trial.values, f"trial {trial.number + 1}"), folder)


def _placed(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"output_dir": str(folder)})
