"""The trials of a search with their dev scores, as its record stores them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.experiments.record import Record

TRIALS = "trials"

Tree = dict[str, Any]


@dataclass(frozen=True)
class SearchTrial:
    """Values of the searched keys, the best dev score of each fine-tuning seed, and the cost without reused stages.

    >>> trial = SearchTrial(7, {"pretrain.weighting.rho1": 19}, dev=(0.5, 0.75))
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
        """The standard deviation over the seeds; 0 for a single seed."""
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
            trees = [record.trials[key] for key in sorted(record.trials)]
            trials = tuple(SearchTrial(**{**tree, "dev": tuple(tree["dev"])}) for tree in trees)
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
        """The first trial with the highest mean on dev."""
        scored = [trial for trial in self.finished if trial.dev]
        return max(scored, key=lambda trial: trial.mean) if scored else None

    def to_dict(self) -> Tree:
        """Return plain values for JSON."""
        trials = [
            {**asdict(trial), "folder": trial.folder, "mean": trial.mean, "std": trial.std} for trial in self.trials
        ]
        return {**self.spec, "trials": trials, "winner": self.winner}
