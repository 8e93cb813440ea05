"""Trials of a search: ordinary runs that stop before test; stages they have in common are done once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.errors import InputError, TrainingError
from endtask.experiments.record import Record
from endtask.experiments.stage_reuse import is_reused, reuse_data, reuse_stages
from endtask.io.run_layout import STAGES
from endtask.pipeline.run import Run
from endtask.pipeline.stages import STAGES as ALL_STAGES
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import seed_rows

LAST_STAGE = "finetune"
"""Where trials stop: dev is scored by then, test is not."""
TRIALS = "trials"

Tree = dict[str, Any]


@dataclass(frozen=True)
class SearchTrial:
    """Values of the searched keys, the best dev score of each fine-tuning seed, and what the trial itself cost.

    Stages that it reuses from other trials cost nothing here.

    >>> trial = SearchTrial(7, {"pretrain.rho1": 19}, dev=(0.5, 0.75))
    >>> trial.folder, trial.mean, trial.is_finished
    ('trials/007', 0.625, True)
    """

    number: int
    values: Tree
    dev: tuple[float, ...] = ()
    failure: str | None = None
    seconds: float = 0.0
    tokens: int = 0
    flops: float = 0.0

    @classmethod
    def from_dict(cls, tree: Tree) -> SearchTrial:
        """Return the trial that a record stores."""
        return cls(**{**tree, "dev": tuple(tree["dev"])})

    @property
    def key(self) -> str:
        """The trial's name in the record and of its folder."""
        return f"{self.number:03}"

    @property
    def folder(self) -> str:
        """The folder of the trial's run, relative to the search's folder."""
        return f"{TRIALS}/{self.key}"

    @property
    def is_finished(self) -> bool:
        """Whether the trial has a score or failed."""
        return bool(self.dev) or self.failure is not None

    @property
    def mean(self) -> float:
        """The score that trials are compared by; 0 for a failed trial."""
        return statistics.fmean(self.dev) if self.dev else 0.0

    @property
    def std(self) -> float:
        """Standard deviation over the seeds; 0 for a single one."""
        return statistics.stdev(self.dev) if len(self.dev) > 1 else 0.0


@dataclass(frozen=True)
class SearchResult:
    """A search so far: its spec, its trials in order, and the winner's test score at the end."""

    folder: Path
    spec: Tree
    trials: tuple[SearchTrial, ...] = ()
    winner: Tree | None = None
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.spec["space"]))

    @classmethod
    def from_record(cls, record: Record) -> SearchResult:
        """Return the search that a record stores."""
        try:
            trials = tuple(SearchTrial.from_dict(record.trials[key]) for key in sorted(record.trials))
            return cls(record.folder, record.spec, trials, record.outcome)
        except (KeyError, TypeError, AttributeError):
            hint = "was the file edited by hand?"
            raise InputError("not the record of a search", path=record.folder, hint=hint) from None

    @property
    def finished(self) -> tuple[SearchTrial, ...]:
        """The trials with a result, in order."""
        return tuple(trial for trial in self.trials if trial.is_finished)

    @property
    def best(self) -> SearchTrial | None:
        """The trial with the highest mean on dev; of equal ones the first."""
        scored = [trial for trial in self.finished if trial.dev]
        return max(scored, key=lambda trial: trial.mean) if scored else None

    def to_dict(self) -> Tree:
        """Return plain values for JSON."""
        trials = [
            {**asdict(trial), "folder": trial.folder, "mean": trial.mean, "std": trial.std} for trial in self.trials
        ]
        return {**self.spec, "trials": trials, "winner": self.winner}


def prepare_base(base: Run, keys: Sequence[str], *, may_redo: bool) -> None:
    """Do the stages before training that no searched key has a part in; redo changed ones before any trial."""
    clash = base.first_clash()
    if clash is not None and not may_redo:
        raise InputError(
            f"the data that the stage {clash} reads changed since the trials were made",
            path=base.folder.parent,
            hint="choose another --output; nothing was touched",
        )
    before_training = STAGES[: STAGES.index("pretrain")]
    common = list(takewhile(lambda stage: not _reads_any(stage, keys, base.settings), before_training))
    # `read` at least, since no search may change the task; and every stage that exists already.
    base.go(until=max(common[-1], clash or "read", key=STAGES.index), start=clash)


def run_trial(settings: Settings, trial: SearchTrial, base: Run, earlier: Sequence[Path]) -> SearchTrial:
    """Do what is left of a trial and return it with its result.

    It reuses stages that `base` or `earlier` trials did with the same settings, so two equal trials train once.
    """
    run = Run(settings)
    reuse_data(base, run)
    try:
        reuse_stages(run, [base.folder, *earlier])
        run.go(until=LAST_STAGE)
    except TrainingError as error:  # such as a learning rate too high: a result for these values, not the end
        return with_result(replace(trial, failure=str(error)), run.folder)
    found = with_result(trial, run.folder)
    if not found.dev:
        raise InputError("no dev score to compare the trials by", path=run.folder)
    return found


def with_result(trial: SearchTrial, folder: Path) -> SearchTrial:
    """Return the trial with its dev scores and the cost of the stages that it did itself."""
    run = RunFolder(folder)
    own = total_cost([cost for cost in stage_costs(run) if not is_reused(folder / cost.stage)])
    return replace(
        trial,
        dev=() if trial.failure else tuple(row.dev for row in seed_rows(run)),
        seconds=own["seconds"],
        tokens=int(own["tokens"]),
        flops=own["flops"],
    )


def _reads_any(stage: str, keys: Sequence[str], settings: Settings) -> bool:
    pairs = [(f"{key}.", f"{read}.") for key in keys for read in ALL_STAGES[stage].settings_read(settings)]
    return any(key.startswith(read) or read.startswith(key) for key, read in pairs)
