"""Differences of two variants from the results files, their mean over tasks, and the verdict on a claim.

A comparison is the mean score of a variant less that of another one, with a 95% interval: the one stored with the
results (over rows and seeds), else Welch's over pre-trainings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from benchmarks.results_file import RESULTS, read_results
from studies.tables import select

Tree = dict[str, Any]
Verdict = Literal["holds", "does not hold", "undecided"]
Scale = Literal["test", "label_words", "task weight", "positional", "vertical"]
UNITS: dict[Scale, str] = {
    "test": "points",
    "label_words": "%",
    "task weight": "points of weight",
    "positional": "points more positional",
    "vertical": "points fewer vertical",
}
HEADS: tuple[Scale, Scale] = ("positional", "vertical")
"""The kinds of attention heads: the runs are to have more of the first and fewer of the second."""
_NORMAL = 1.96


@dataclass(frozen=True)
class Comparison:
    """Two variants of a results file on a task; `where` are further values of their rows.

    On the scale `task weight`, `worse` may be a number: the weight that the learned weight of the task should exceed.
    """

    file: str
    task: str
    better: str
    worse: str
    where: tuple[tuple[str, str], ...] = ()
    scale: Scale = "test"
    counts: bool = True
    """Whether it is part of the mean that decides the claim; else it is only shown."""

    @property
    def names(self) -> tuple[str, str]:
        """Both variants."""
        return self.better, self.worse

    @property
    def undecided_because(self) -> str:
        """Why the study was too small to decide, as its results file says; empty if it was not."""
        return str(read_results(self.file).summary.get("undecided_because", ""))

    def rows(self) -> list[Tree]:
        """Return the rows of the task in the results file; none without a file."""
        if not (RESULTS / f"{self.file}.json").exists():
            return []
        return select(read_results(self.file).rows, task=self.task, **dict(self.where))


@dataclass(frozen=True)
class Estimate:
    """A difference with its 95% interval, in points; without spread over pre-trainings the ends are missing."""

    mean: float
    low: float | None
    high: float | None
    p_value: float | None

    @property
    def has_interval(self) -> bool:
        """Whether the difference has an interval."""
        return self.low is not None and self.high is not None


def estimate(comparison: Comparison) -> Estimate | None:
    """Return the difference of a comparison; None where a variant was not measured."""
    rows = comparison.rows()
    if comparison.scale == "label_words":
        return _label_words(rows, comparison)
    if comparison.scale == "task weight":
        return _weights(rows, comparison)
    if comparison.scale in HEADS:
        return _heads(rows, comparison)
    if comparison.file == "alignment":
        return _single(rows, comparison)
    return _stored(rows, comparison) or _welch_or_none(*(_run_scores(rows, name) for name in comparison.names))


def _label_words(rows: list[Tree], comparison: Comparison) -> Estimate | None:
    """Return by how many percent the share of label words in one selection is above that in another one."""
    shares = [_shares_of_label_words(rows, name) for name in comparison.names]
    if not all(shares):
        return None
    base = fmean(shares[1])
    if min(map(len, shares)) < 2:
        return Estimate(100 * (fmean(shares[0]) - base) / base, None, None, None)
    return welch([share / base for share in shares[0]], [share / base for share in shares[1]])


def _shares_of_label_words(rows: list[Tree], name: str) -> list[float]:
    chosen = [row["label_words"] for row in select(rows, kind="chosen", cell=name)]
    by_seed = {
        row["seed"]: row["selection"]["label_words"]
        for row in select(rows, kind="curve", cell=name)
        if "label_words" in row.get("selection", {})
    }
    return chosen or list(by_seed.values())


def _weights(rows: list[Tree], comparison: Comparison) -> Estimate | None:
    """Return the difference of the task's last learned weight from that of another variant, or from a number."""
    better, worse = (_last_weights(rows, name) for name in comparison.names)
    if not worse and comparison.worse.replace(".", "", 1).isdigit():
        return one_sample(better, float(comparison.worse)) if better else None
    return _welch_or_none(better, worse)


def _last_weights(rows: list[Tree], cell: str) -> list[float]:
    return [row["weights"]["task"] for row in select(rows, cell=cell) if "task" in row.get("weights", {})]


def _heads(rows: list[Tree], comparison: Comparison) -> Estimate | None:
    """Return how much more (positional) or less (vertical) of a variant's heads than of the reference are of a kind."""
    runs = select(rows, kind="run", cell=comparison.better, state="pre-trained")
    references = select(rows, kind="checkpoint", is_reference=True)
    if not (runs and references):
        return None
    sign = 1 if comparison.scale == "positional" else -1
    shares, limits = ([sign * row[comparison.scale] / row["heads"] for row in found] for found in (runs, references))
    if len(set(shares)) < 2:  # equal counts have no interval
        return Estimate(100 * (fmean(shares) - limits[0]), None, None, None)
    return one_sample(shares, limits[0])


def _single(rows: list[Tree], comparison: Comparison) -> Estimate | None:
    """Return the difference of two single pre-trainings."""
    found = [select(rows, kind="cell", title=name, labels=200) for name in comparison.names]
    if not all(found):
        return None
    better, worse = (cells[0]["accuracy"]["mean"] for cells in found)
    return Estimate(100 * (better - worse), None, None, None)


def _run_scores(rows: Iterable[Tree], cell: str) -> list[float]:
    """Return the mean test score of each pre-training."""
    runs = {row["seed"]: fmean(row["test"]) for row in select(rows, kind="run", cell=cell)}
    return list(runs.values())


def _stored(rows: list[Tree], comparison: Comparison) -> Estimate | None:
    """Return a difference whose interval over rows and seeds is in the file."""
    pairs = select(rows, kind="pair", cell=comparison.better, over=comparison.worse)
    tables = [row for row in select(rows, kind="cell", cell=comparison.better) if row.get("table") == comparison.worse]
    for row in (*pairs, *tables):
        if "interval" in row:
            low, high = row["interval"]
            return Estimate(100 * row["lead"], 100 * low, 100 * high, row["p"])
    return None


def _welch_or_none(better: list[float], worse: list[float]) -> Estimate | None:
    return welch(better, worse) if better and worse else None


def welch(better: Iterable[float], worse: Iterable[float]) -> Estimate:
    """Return the difference of two means in points, with Welch's interval and p-value over pre-trainings.

    >>> found = welch([0.5, 0.52, 0.54], [0.4, 0.42, 0.41])
    >>> round(found.mean, 1), found.low is not None and found.low > 0
    (11.0, True)
    """
    from scipy import stats

    first, second = list(better), list(worse)
    mean = 100 * (fmean(first) - fmean(second))
    if min(len(first), len(second)) < 2:
        return Estimate(mean, None, None, None)
    found = stats.ttest_ind(first, second, equal_var=False)
    interval = found.confidence_interval(0.95)
    return Estimate(mean, 100 * float(interval.low), 100 * float(interval.high), float(found.pvalue))


def one_sample(values: Iterable[float], limit: float) -> Estimate:
    """Return how far a mean is above a limit in points, with Student's interval.

    >>> found = one_sample([0.97, 0.98, 0.99], 0.95)
    >>> round(found.mean, 1), found.low is not None and found.low > 0
    (3.0, True)
    """
    from scipy import stats

    measured = list(values)
    mean = 100 * (fmean(measured) - limit)
    if len(measured) < 2:
        return Estimate(mean, None, None, None)
    found = stats.ttest_1samp(measured, limit)
    interval = found.confidence_interval(0.95)
    ends = (100 * (float(interval.low) - limit), 100 * (float(interval.high) - limit))
    return Estimate(mean, *ends, float(found.pvalue))


def pooled(estimates: Iterable[Estimate]) -> Estimate | None:
    """Return the mean of independent differences with its interval; None where one has no interval."""
    found = list(estimates)
    if not found or not all(one.has_interval for one in found):
        return None
    mean = fmean(one.mean for one in found)
    squares = sum(((one.high or 0.0) - (one.low or 0.0)) ** 2 for one in found)
    half = math.sqrt(squares) / 2 / len(found)
    deviations = abs(mean) / (half / _NORMAL) if half else math.inf
    return Estimate(mean, mean - half, mean + half, math.erfc(deviations / math.sqrt(2)))


def weakest(parts: Iterable[Estimate | None]) -> Estimate | None:
    """Return the part that decides whether all hold: one that does not hold, else the one with the lowest end.

    >>> weakest([Estimate(5.0, 1.0, 9.0, 0.02), Estimate(-3.0, -5.0, -1.0, 0.01)]), weakest([None])
    (Estimate(mean=-3.0, low=-5.0, high=-1.0, p_value=0.01), None)
    """
    found = list(parts)
    known = [one for one in found if one is not None and one.has_interval]
    refuted = [one for one in known if (one.high or 0.0) < 0]
    if not refuted and len(known) < len(found):
        return None
    return min(refuted or known, key=lambda one: one.low or 0.0, default=None)


def verdict(found: Estimate | None, reason: str = "") -> Verdict:
    """Return whether a claim holds, by the interval of the mean difference.

    >>> verdict(Estimate(1.0, 0.2, 1.8, 0.01), ""), verdict(Estimate(1.0, -0.2, 2.2, 0.1), ""), verdict(None, "not run")
    ('holds', 'undecided', 'undecided')
    """
    if reason or found is None or found.low is None or found.high is None:
        return "undecided"
    return "holds" if found.low > 0 else "does not hold" if found.high < 0 else "undecided"
