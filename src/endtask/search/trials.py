"""A trial is an ordinary run that stops before test; what trials have in common is done once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from endtask.config import Settings
from endtask.errors import InputError, TrainingError
from endtask.io.run_layout import STAGES
from endtask.pipeline.reuse import is_reused, reuse_stages, share_inputs
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES as ALL_STAGES
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import seed_rows
from endtask.search.record import Trial

LAST_STAGE = "finetune"
"""Where trials stop: dev has been scored there, test has not."""


def prepare_base(base: Run, keys: Sequence[str], *, may_redo: bool) -> None:
    """Do the stages before training that no searched key has a part in; what changed is redone before any trial."""
    clash = base.first_clash()
    if clash is not None and not may_redo:
        raise InputError(
            f"the data that the stage {clash} reads changed since the trials were made",
            path=base.folder.parent,
            hint="choose another --output; nothing was touched",
        )
    before_training = STAGES[: STAGES.index("pretrain")]
    untouched = list(takewhile(lambda stage: not _reads_one_of(stage, keys, base.settings), before_training))
    # `read` at least, since no search may touch the task; and what stands there already.
    base.go(until=max(untouched[-1], clash or "read", key=STAGES.index), start=clash)


def run_trial(settings: Settings, trial: Trial, base: Run, earlier: Sequence[Path]) -> Trial:
    """Do what is left of a trial and return it with its result.

    It is given the stages that `base` or `earlier` trials did with the same settings; two equal trials train once.
    """
    run = Run(settings)
    share_inputs(base, run)
    try:
        reuse_stages(run, [base.folder, *earlier])
        run.go(until=LAST_STAGE)
    except TrainingError as error:  # a rate too high, a batch too large: the answer for these values, not the end
        return measured(replace(trial, failure=str(error)), run.folder)
    found = measured(trial, run.folder)
    if not found.dev:
        raise InputError("no dev score to compare the trials by", path=run.folder)
    return found


def measured(trial: Trial, folder: Path) -> Trial:
    """The trial with its dev scores and the cost of the stages that it did itself."""
    run = RunFolder(folder)
    own = total_cost([cost for cost in stage_costs(run) if not is_reused(folder / cost.stage)])
    return replace(
        trial,
        dev=() if trial.failure else tuple(row.dev for row in seed_rows(run)),
        seconds=own["seconds"],
        tokens=int(own["tokens"]),
        flops=own["flops"],
    )


def _reads_one_of(stage: str, keys: Sequence[str], settings: Settings) -> bool:
    pairs = [(f"{key}.", f"{read}.") for key in keys for read in ALL_STAGES[stage].settings_read(settings)]
    return any(key.startswith(read) or read.startswith(key) for key, read in pairs)
