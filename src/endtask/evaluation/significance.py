"""Permutation tests and bootstrap intervals of scores and of their differences, and Holm's correction.

SciPy's resampling calls a statistic for each permutation; here one matrix product scores thousands of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from endtask.evaluation.metrics.base import Values
from endtask.evaluation.task_metrics import Measure, as_measure, checked_truth, runs_by_rows
from endtask.seeds import generator
from endtask.task.targets import Answers

# Scores are at most 1 and equal ones may differ in their last bits; ties with the observed one must count as ties.
_ROUNDING = 1e-12


def metric_permutation(
    first: ArrayLike,
    second: ArrayLike,
    truth: ArrayLike,
    metric: str | Measure,
    *,
    groups: NDArray[np.int64] | None = None,
    permutations: int = 10_000,
    seed: int = 0,
) -> float:
    """Return the two-sided p-value of the difference of two systems' mean scores.

    `first` and `second` are answers, runs x rows (a single run may be flat; groups x runs x rows count as so many
    runs); label sets and tags have one axis more. A permutation swaps the predictions of all runs of the two systems in
    some rows; the statistic is the mean score of the first less that of the second. If the numbers of runs differ, both
    are repeated to their least common multiple. The observed labelling counts as one permutation, so p is never 0. If
    all swaps of the rows in which the systems differ are at most `permutations`, each counts once and p is exact.

    `groups` gives a number for each row; rows of one number, such as questions about one sentence, swap together.

    >>> metric_permutation([0, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], "accuracy")
    0.125
    >>> metric_permutation([0, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], "accuracy", groups=np.array([0, 0, 7, 7]))
    0.5
    """
    measure = as_measure(metric)
    answers = checked_truth(truth, measure)
    systems = _as_many_runs(runs_by_rows(first, answers), runs_by_rows(second, answers))
    swaps = _Swaps(*systems, answers, measure, numbered_groups(groups, len(answers)))
    observed = abs(swaps.differences(np.zeros((swaps.units, 1), dtype=np.bool_))[0]) - _ROUNDING
    exact = 2**swaps.units <= permutations
    drawn = _all_choices(swaps.units) if exact else _random_choices(swaps.units, permutations, swaps.at_once, seed)
    extreme = sum(int((np.abs(swaps.differences(swapped)) >= observed).sum()) for swapped in drawn)
    return extreme / 2**swaps.units if exact else (extreme + 1) / (permutations + 1)


def run_permutation(first: ArrayLike, second: ArrayLike, *, permutations: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of the difference of two systems' mean scores, permuted over their runs.

    This is TARTAN's test: the scores of all runs are assigned to the systems at random. It is exact where all choices
    are at most `permutations`; else the observed choice counts as one.

    >>> run_permutation([0.71, 0.72, 0.73], [0.61, 0.62, 0.63])
    0.1
    """
    scores = np.concatenate([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)])
    size, total = len(np.atleast_1d(first)), len(scores)

    def differences(chosen: NDArray[np.int64]) -> Values:
        sums = scores[chosen].sum(axis=-1)
        found: Values = sums / size - (scores.sum() - sums) / (total - size)
        return found

    observed = abs(float(differences(np.arange(size)))) - _ROUNDING
    if math.comb(total, size) <= permutations:
        every = np.array(list(combinations(range(total), size)))
        return float((np.abs(differences(every)) >= observed).mean())
    random = generator(seed, "permutation of runs")
    drawn = random.permuted(np.tile(np.arange(total), (permutations, 1)), axis=1)[:, :size]
    return (int((np.abs(differences(drawn)) >= observed).sum()) + 1) / (permutations + 1)


def bootstrap_interval(
    first: ArrayLike,
    second: ArrayLike | None,
    truth: ArrayLike,
    metric: str | Measure,
    *,
    groups: NDArray[np.int64] | None = None,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    resample_runs: bool = True,
    paired_runs: bool = False,
) -> tuple[float, float]:
    """Return the percentile interval of the first system's mean score over its runs, or of its lead over the second.

    Systems are answers, runs x rows (a single run may be flat), or families x runs x rows, such as fine-tuning runs of
    several pre-trainings. Each sample draws rows with replacement, the same for both systems, then families, then runs
    within each family. Runs of the two systems are drawn independently, or together with `paired_runs`, if run i of
    both has the same seeds. Without `resample_runs` the interval is about new rows for the same models. With `groups`,
    a number for each row, whole groups of rows are drawn.

    >>> low, high = bootstrap_interval([0, 1, 1, 0] * 25, None, [0, 1, 0, 0] * 25, "accuracy")
    >>> round(low, 2), round(high, 2)
    (0.66, 0.83)
    """
    if not 0 < level < 1:
        raise ValueError(f"level {level} does not lie between 0 and 1")
    measure = as_measure(metric)
    answers = checked_truth(truth, measure)
    systems = [first] if second is None else [first, second]
    designs = [_design(system, answers) for system in systems]
    if paired_runs and len(set(designs)) > 1:
        raise ValueError(f"runs cannot be paired: {designs[0]} and {designs[1]} families and runs in each")
    counts = measure.counted(np.concatenate([runs_by_rows(system, answers) for system in systems]), answers)
    rows, runs = generator(seed, "bootstrap", "rows"), generator(seed, "bootstrap", "runs")
    group_of = numbered_groups(groups, len(answers))
    number = int(group_of.max(initial=-1)) + 1
    values = []
    for draws in _chunks(samples, counts.draws_at_once):
        scores = counts.scores(counts.weighted(_drawn_groups(rows, number, draws)[group_of]))
        shares = _drawn_shares(runs, designs, draws, paired=paired_runs) if resample_runs else _equal_shares(designs)
        values.append(_lead(scores, shares))
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for several tests by Holm's step-down correction, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p-values lie between 0 and 1, not {list(p_values)}")
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in adjusted]


class _Swaps:
    """Differences of two systems' mean scores after swaps of groups of the rows in which they differ."""

    def __init__(
        self, first: Answers, second: Answers, truth: Answers, measure: Measure, groups: NDArray[np.int64]
    ) -> None:
        self._differ = (first != second).any(axis=tuple(axis for axis in range(first.ndim) if axis != 1))
        # The first system's answers for all rows, then the second's for the rows that may be swapped: a swap moves
        # weight from one column to another.
        answers = np.concatenate([first, second[:, self._differ]], axis=1)
        self._counts = measure.counted(answers, np.concatenate([truth, truth[self._differ]]))
        weights = np.concatenate([np.where(self._differ, 1, 2), np.ones(self._differ.sum())])
        self._both_systems = self._counts.weighted(weights[:, None])
        self._unit_of = numbered_groups(groups[self._differ], int(self._differ.sum()))

    @property
    def units(self) -> int:
        """Number of groups of rows whose swap has an effect."""
        return int(self._unit_of.max(initial=-1)) + 1

    @property
    def at_once(self) -> int:
        """Number of permutations to hold in memory together."""
        return self._counts.draws_at_once

    def differences(self, swapped_units: NDArray[np.bool_]) -> Values:
        """Return the first's mean score less the second's for each column of `swapped_units` (units, permutations)."""
        swapped = swapped_units[self._unit_of]
        unswapped = np.ones((len(self._differ), swapped.shape[1]), dtype=np.float32)
        unswapped[self._differ] = ~swapped
        first = self._counts.weighted(np.concatenate([unswapped, swapped]))
        second = self._both_systems - first
        leads = self._counts.scores(first) - self._counts.scores(second)
        means: Values = leads.mean(axis=0)
        return means


def _as_many_runs(first: Answers, second: Answers) -> tuple[Answers, Answers]:
    """Return both systems, repeated to the least common multiple of their numbers of runs."""
    runs = math.lcm(len(first), len(second))
    return np.concatenate([first] * (runs // len(first))), np.concatenate([second] * (runs // len(second)))


def _chunks(total: int, at_once: int) -> Iterator[int]:
    for start in range(0, total, at_once):
        yield min(at_once, total - start)


def numbered_groups(groups: NDArray[np.int64] | None, rows: int) -> NDArray[np.int64]:
    """Return group numbers from 0 without gaps: (rows,); without groups every row is a group."""
    if groups is None:
        return np.arange(rows)
    if len(groups) != rows:
        raise ValueError(f"{len(groups)} groups are given for {rows} rows")
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


def _all_choices(units: int) -> Iterator[NDArray[np.bool_]]:
    """Yield every choice of units once: (units, choices)."""
    yield (np.arange(2**units) >> np.arange(units)[:, None] & 1).astype(np.bool_)


def _random_choices(units: int, total: int, at_once: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield random choices of units in chunks: (units, choices)."""
    random = generator(seed, "permutation")
    for choices in _chunks(total, at_once):
        yield random.integers(0, 2, size=(units, choices), dtype=np.bool_)


def _design(system: ArrayLike, truth: Answers) -> tuple[int, int]:
    """Return the number of families and of runs in each; without families each run is one."""
    shape = np.asarray(system).shape[: np.ndim(system) - truth.ndim + 1]
    if len(shape) == 3:
        return shape[0], shape[1]
    return (shape[0], 1) if len(shape) == 2 else (1, 1)


def _drawn_groups(random: np.random.Generator, groups: int, draws: int) -> NDArray[np.int64]:
    """Return how often each group of rows is drawn: (groups, draws)."""
    return _times_drawn(random.integers(0, groups, size=(groups, draws)), groups)


def _drawn_shares(
    random: np.random.Generator, designs: list[tuple[int, int]], draws: int, *, paired: bool
) -> list[Values]:
    """Return for each system the weight of each run in its mean: (runs, draws)."""
    if paired:
        return [_drawn_runs(random, *designs[0], draws)] * len(designs)
    return [_drawn_runs(random, families, runs, draws) for families, runs in designs]


def _drawn_runs(random: np.random.Generator, families: int, runs: int, draws: int) -> Values:
    """Draw families with replacement, and runs within each; returns weights in the mean (families * runs, draws)."""
    first_runs = runs * random.integers(0, families, size=(families, 1, draws))
    chosen = (first_runs + random.integers(0, runs, size=(families, runs, draws))).reshape(families * runs, draws)
    return _times_drawn(chosen, families * runs) / (families * runs)


def _equal_shares(designs: list[tuple[int, int]]) -> list[Values]:
    return [np.full((families * runs, 1), 1 / (families * runs)) for families, runs in designs]


def _lead(scores: Values, shares: list[Values]) -> Values:
    """Return the mean of the first system's scores, less that of the second if there is one."""
    runs = len(shares[0])
    means: Values = (scores[:runs] * shares[0]).sum(axis=0)
    return means if len(shares) == 1 else means - (scores[runs:] * shares[1]).sum(axis=0)


def _times_drawn(chosen: NDArray[np.int64], choices: int) -> NDArray[np.int64]:
    """Return how often each choice occurs in each column: (choices, columns)."""
    columns = chosen.shape[1]
    cells = chosen * columns + np.arange(columns)
    return np.bincount(cells.ravel(), minlength=choices * columns).reshape(choices, columns)
