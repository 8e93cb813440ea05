"""The table of a comparison: for each cell its scores, how sure they are, how they differ, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.compare.scored import Cost, Judged, Scored
from endtask.evaluation.significance import bootstrap_interval, holm, metric_permutation
from endtask.evaluation.task_metrics import score_runs
from endtask.io.digests import fingerprint
from endtask.task.targets import Answers

VERSION = 2
"""Raised with every change of what intervals and tests come to, so that earlier tables lend none of theirs."""
PERMUTATIONS = 10_000
LEVEL = 0.95
CLEAR = 0.05

Tree = dict[str, Any]


@dataclass(frozen=True)
class Lead:
    """How far a cell's mean score lies above the cell's it is tested against, in the same rows."""

    mean: float
    low: float
    high: float
    p_value: float
    p_holm: float = 1.0

    @property
    def is_clear(self) -> bool:
        """Whether neither the choice of rows, over all tests of the table, nor that of seeds is likely to explain it.

        >>> Lead(0.02, 0.01, 0.03, 0.001, 0.004).is_clear, Lead(0.02, -0.01, 0.05, 0.001, 0.004).is_clear
        (True, False)
        """
        return self.p_holm < CLEAR and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Figures:
    """Scores on some rows: mean and spread over all runs, the interval of the mean, the lead over the other cell."""

    mean: float
    std: float
    low: float | None = None
    high: float | None = None
    lead: Lead | None = None


@dataclass(frozen=True)
class Row:
    """A cell in the table; without `score` it has none yet, or all of its runs failed.

    A checkpoint that is fine-tuned as it is has no pre-training that another seed would make otherwise. `tokenizer` marks
    the one that its runs learned.
    """

    name: str
    is_baseline: bool
    differs: Tree
    note: str
    runs: int = 0
    score: Figures | None = None
    leak_free: Figures | None = None
    dev: Figures | None = None
    cost: Cost | None = None
    failures: tuple[str, ...] = ()
    mark: str = ""
    has_stage_one: bool = True
    tokenizer: str | None = None


@dataclass(frozen=True)
class Outcome:
    """A comparison as it stands: a row for each cell in the order given, and the runs behind them by cell.

    `missing` names the runs that may still get a score, and the baselines that may.
    """

    folder: Path
    judged: Judged
    against: str
    rows: tuple[Row, ...]
    runs: Mapping[str, tuple[Scored, ...]]
    is_tested: bool
    missing: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do; runs that broke count as done."""
        return self.is_tested and not self.missing

    @property
    def has_trained_runs(self) -> bool:
        """Whether some run has a score; untrained baselines are none."""
        return any(run.seed is not None for runs in self.runs.values() for run in runs)

    @property
    def has_failures(self) -> bool:
        """Whether the training of some run broke."""
        return any(row.failures for row in self.rows)

    def row(self, name: str) -> Row:
        """The row of a cell."""
        return next(row for row in self.rows if row.name == name)

    def is_of_one_seed(self, name: str) -> bool:
        """Whether a cell, or the one it is tested against, was trained once: its lead may be the luck of that."""
        return any(self._is_trained_once(each) for each in (name, self.against))

    def _is_trained_once(self, name: str) -> bool:
        trained = [run for run in self.runs[name] if run.seed is not None]
        times = len(trained) if self.row(name).has_stage_one else sum(len(run.finetune_seeds) for run in trained)
        return times == 1  # untrained baselines: 0, and no luck

    def statistics(self) -> Tree:
        """Plain values for JSON."""
        return {
            "folder": str(self.folder),
            "complete": self.is_complete,
            "missing": list(self.missing),
            "split": self.judged.split,
            "metric": self.judged.metric,
            "examples": len(self.judged.ids),
            "groups": self.judged.group_count,
            "leak_free_examples": int(self.judged.clean.sum()),
            "against": self.against,
            "permutations": PERMUTATIONS,
            "level": LEVEL,
            "rows": [asdict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class Statistics:
    """The statistics of a table: what was judged, the runs tested against, and rows of an earlier table by mark."""

    judged: Judged
    against: Sequence[Scored]
    known: Mapping[str, Tree]
    permutations: int = PERMUTATIONS

    def row(self, row: Row, runs: Sequence[Scored]) -> Row:
        """The row with intervals and, unless it is the one tested against, its lead."""
        mark = self._mark(runs)
        known = self.known.get(mark)
        if known is not None:
            return replace(row, mark=mark, score=_read(known["score"]), leak_free=_read(known["leak_free"]))
        everything = np.ones(len(self.judged.truth), dtype=bool)
        assert row.score is not None
        found = replace(row, mark=mark, score=self._statistics(row.score, runs, everything))
        if row.leak_free is not None:
            found = replace(found, leak_free=self._statistics(row.leak_free, runs, self.judged.clean))
        return found

    def _statistics(self, statistics: Figures, runs: Sequence[Scored], rows: NDArray[np.bool_]) -> Figures:
        truth, metric, groups = self.judged.truth[rows], self.judged.measure, self.judged.groups[rows]
        one = _together(runs)[:, :, rows]
        low, high = bootstrap_interval(one, None, truth, metric, groups=groups, level=LEVEL, samples=self.permutations)
        statistics = replace(statistics, low=low, high=high)
        if not self.against or runs is self.against:
            return statistics
        other = _together(self.against)[:, :, rows]
        mean = statistics.mean - float(score_runs(_flat(other), truth, metric).mean())
        # Luck that two cells share, such as one pre-training under two ways of fine-tuning, then cancels.
        paired = _seeds(runs) == _seeds(self.against)
        low, high = bootstrap_interval(
            one, other, truth, metric, groups=groups, level=LEVEL, samples=self.permutations, paired_runs=paired
        )
        p_value = metric_permutation(one, other, truth, metric, groups=groups, permutations=self.permutations)
        return replace(statistics, lead=Lead(mean, low, high, p_value))

    def _mark(self, runs: Sequence[Scored]) -> str:
        """What the figures of a row depend on."""
        judged = self.judged
        rows = (judged.split, judged.metric, judged.truth.tolist(), judged.clean.tolist(), judged.groups.tolist())
        both = [[run.mark() for run in each] for each in (runs, self.against)]
        kind = (runs is self.against, _seeds(runs) == _seeds(self.against))
        return fingerprint(VERSION, rows, both, kind, self.permutations, LEVEL)


def plain_row(row: Row, runs: Sequence[Scored], judged: Judged) -> Row:
    """The row with all that needs no test."""
    if not runs:
        return row
    predicted = _flat(_together(runs))
    clean = judged.clean
    return replace(
        row,
        runs=len(predicted),
        score=_mean_and_spread(score_runs(predicted, judged.truth, judged.measure)),
        leak_free=_mean_and_spread(score_runs(predicted[:, clean], judged.truth[clean], judged.measure))
        if judged.has_leaks
        else None,
        dev=_mean_and_spread([score for run in runs for score in run.dev]),
        cost=_mean_cost([run.cost for run in runs]),
    )


def with_holm(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with p-values that hold for all tests of the table together, leak-free ones among themselves."""
    found = list(rows)
    for part in ("score", "leak_free"):
        leads = {place: lead for place, row in enumerate(found) if (lead := _lead(row, part)) is not None}
        adjusted = holm([lead.p_value for lead in leads.values()])
        for (place, lead), value in zip(leads.items(), adjusted, strict=True):
            statistics = replace(getattr(found[place], part), lead=replace(lead, p_holm=value))
            found[place] = replace(found[place], **{part: statistics})
    return tuple(found)


def _lead(row: Row, part: str) -> Lead | None:
    statistics: Figures | None = getattr(row, part)
    return statistics.lead if statistics is not None else None


def _seeds(runs: Sequence[Scored]) -> list[tuple[int | None, tuple[int, ...]]]:
    return [(run.seed, run.finetune_seeds) for run in runs]


def _together(runs: Sequence[Scored]) -> Answers:
    """Answers by pre-training seed, fine-tuning seed and row."""
    return np.stack([run.predicted for run in runs])


def _flat(predicted: Answers) -> Answers:
    return predicted.reshape(-1, *predicted.shape[2:])


def _mean_and_spread(values: Sequence[float] | NDArray[np.float64]) -> Figures:
    numbers = [float(value) for value in values]
    return Figures(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0)


def _mean_cost(costs: Sequence[Cost]) -> Cost:
    return Cost(
        flops=statistics.fmean(cost.flops for cost in costs),
        matmul_flops=statistics.fmean(cost.matmul_flops for cost in costs),
        train_seconds=statistics.fmean(cost.train_seconds for cost in costs),
        seconds=statistics.fmean(cost.seconds for cost in costs),
        text_bytes=round(statistics.fmean(cost.text_bytes for cost in costs)),
        parameters=costs[0].parameters,
    )


def _read(tree: Tree | None) -> Figures | None:
    if tree is None:
        return None
    return Figures(**{**tree, "lead": Lead(**tree["lead"]) if tree["lead"] else None})
