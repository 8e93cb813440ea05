"""Is a difference more than chance, and how large may it be? Permutation tests and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from endtask.evaluate.counting import Values
from endtask.evaluate.measures import Measure, as_measure, checked_truth, runs_by_rows
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
    permutations: int = 10_000,
    seed: int = 0,
) -> float:
    """Two-sided p-value of the difference of two systems' mean scores when they may be swapped in each row.

    `first` and `second` are answers, runs x rows (a single run may be flat; groups x runs x rows count as so many
    runs): class numbers, or for a `Measure` what its kind has; labels and tags have one axis more. A permutation swaps,
    in each row or not, the predictions of all runs of the two systems together; the statistic is the mean over runs of
    the first's score less that of the second's. Where the numbers of runs differ, both are repeated to their least
    common multiple, which leaves the means as they are. The observed labelling counts as one permutation, so p is never
    0. Where the rows in which the systems differ are so few that all their swaps are no more than `permutations`, each
    is counted once and p is exact.

    >>> metric_permutation([0, 1, 1, 1], [1, 0, 0, 0], [0, 1, 1, 1], "accuracy")
    0.125
    """
    measure = as_measure(metric)
    right = checked_truth(truth, measure)
    swaps = _Swaps(*_as_many_runs(runs_by_rows(first, right), runs_by_rows(second, right)), right, measure)
    observed = abs(swaps.differences(np.zeros((swaps.rows, 1), dtype=np.bool_))[0]) - _ROUNDING
    exact = 2**swaps.rows <= permutations
    drawn = _all_choices(swaps.rows) if exact else _random_choices(swaps.rows, permutations, swaps.at_once, seed)
    extreme = sum(int((np.abs(swaps.differences(swapped)) >= observed).sum()) for swapped in drawn)
    return extreme / 2**swaps.rows if exact else (extreme + 1) / (permutations + 1)


def bootstrap_interval(
    first: ArrayLike,
    second: ArrayLike | None,
    truth: ArrayLike,
    metric: str | Measure,
    *,
    level: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    resample_runs: bool = True,
    paired_runs: bool = False,
) -> tuple[float, float]:
    """Percentile interval of the first system's mean score over its runs, or of its lead over the second's.

    Systems are answers, runs x rows (a single run may be flat). Runs that share something, such as fine-tuning
    runs of one pre-training, go in groups: groups x runs x rows. Each sample draws rows with replacement, the same
    for both systems; then groups, then runs within each drawn group. Runs of the two systems are drawn independently,
    or together where `paired_runs` says that run i of both has the same seeds, so that luck they share cancels.
    Without `resample_runs` the interval is about new rows for these very models.

    >>> low, high = bootstrap_interval([0, 1, 1, 0] * 25, None, [0, 1, 0, 0] * 25, "accuracy")
    >>> round(low, 2), round(high, 2)
    (0.66, 0.83)
    """
    if not 0 < level < 1:
        raise ValueError(f"level {level} does not lie between 0 and 1")
    measure = as_measure(metric)
    right = checked_truth(truth, measure)
    systems = [first] if second is None else [first, second]
    designs = [_design(system, right) for system in systems]
    if paired_runs and len(set(designs)) > 1:
        raise ValueError(f"runs cannot be paired: {designs[0]} and {designs[1]} groups and runs in each")
    counts = measure.counted(np.concatenate([runs_by_rows(system, right) for system in systems]), right)
    rows, runs = generator(seed, "bootstrap", "rows"), generator(seed, "bootstrap", "runs")
    values = []
    for draws in _chunks(samples, counts.draws_at_once):
        scores = counts.scores(counts.weighted(_drawn_rows(rows, len(right), draws)))
        shares = _drawn_shares(runs, designs, draws, paired=paired_runs) if resample_runs else _equal_shares(designs)
        values.append(_lead(scores, shares))
    low, high = np.quantile(np.concatenate(values), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: p-values that hold for all the tests together, in the order given.

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
    """The difference of two systems' mean scores when some of the rows in which they differ are swapped."""

    def __init__(self, one: Answers, other: Answers, truth: Answers, measure: Measure) -> None:
        self._differ = (one != other).any(axis=tuple(axis for axis in range(one.ndim) if axis != 1))
        # What `other` says about the rows that may be swapped stands behind what `one` says about all of them, so
        # that a swap moves weight from one place to the other.
        said = np.concatenate([one, other[:, self._differ]], axis=1)
        self._counts = measure.counted(said, np.concatenate([truth, truth[self._differ]]))
        weights = np.concatenate([np.where(self._differ, 1, 2), np.ones(self.rows)])
        self._both_systems = self._counts.weighted(weights[:, None])

    @property
    def rows(self) -> int:
        """How many rows can be swapped to any effect."""
        return int(self._differ.sum())

    @property
    def at_once(self) -> int:
        """How many permutations are worth holding in memory together."""
        return self._counts.draws_at_once

    def differences(self, swapped: NDArray[np.bool_]) -> Values:
        """The first's mean score less the second's for each column of `swapped` (rows, permutations)."""
        kept = np.ones((len(self._differ), swapped.shape[1]), dtype=np.float32)
        kept[self._differ] = ~swapped
        first = self._counts.weighted(np.concatenate([kept, swapped]))
        second = self._both_systems - first
        leads = self._counts.scores(first) - self._counts.scores(second)
        means: Values = leads.mean(axis=0)
        return means


def _as_many_runs(one: Answers, other: Answers) -> tuple[Answers, Answers]:
    """Both repeated to the least common multiple of their numbers of runs."""
    runs = math.lcm(len(one), len(other))
    return np.concatenate([one] * (runs // len(one))), np.concatenate([other] * (runs // len(other)))


def _chunks(total: int, at_once: int) -> Iterator[int]:
    for start in range(0, total, at_once):
        yield min(at_once, total - start)


def _all_choices(rows: int) -> Iterator[NDArray[np.bool_]]:
    """Every choice of rows once, (rows, choices)."""
    yield (np.arange(2**rows) >> np.arange(rows)[:, None] & 1).astype(np.bool_)


def _random_choices(rows: int, total: int, at_once: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Random choices of rows in chunks, (rows, choices)."""
    random = generator(seed, "permutation")
    for choices in _chunks(total, at_once):
        yield random.integers(0, 2, size=(rows, choices), dtype=np.bool_)


def _design(system: ArrayLike, truth: Answers) -> tuple[int, int]:
    """Groups and runs in each; runs that are not grouped share nothing."""
    shape = np.asarray(system).shape[: np.ndim(system) - truth.ndim + 1]
    if len(shape) == 3:
        return shape[0], shape[1]
    return (shape[0], 1) if len(shape) == 2 else (1, 1)


def _drawn_rows(random: np.random.Generator, rows: int, draws: int) -> NDArray[np.int64]:
    """How often each row is drawn, (rows, draws)."""
    return _times_drawn(random.integers(0, rows, size=(rows, draws)), rows)


def _drawn_shares(
    random: np.random.Generator, designs: list[tuple[int, int]], draws: int, *, paired: bool
) -> list[Values]:
    """For each system, how much each of its runs counts in its mean, (runs, draws)."""
    if paired:
        return [_drawn_runs(random, *designs[0], draws)] * len(designs)
    return [_drawn_runs(random, groups, runs, draws) for groups, runs in designs]


def _drawn_runs(random: np.random.Generator, groups: int, runs: int, draws: int) -> Values:
    """Groups drawn with replacement, and runs within each, as shares of their mean (groups * runs, draws)."""
    first_runs = runs * random.integers(0, groups, size=(groups, 1, draws))
    chosen = (first_runs + random.integers(0, runs, size=(groups, runs, draws))).reshape(groups * runs, draws)
    return _times_drawn(chosen, groups * runs) / (groups * runs)


def _equal_shares(designs: list[tuple[int, int]]) -> list[Values]:
    return [np.full((groups * runs, 1), 1 / (groups * runs)) for groups, runs in designs]


def _lead(scores: Values, shares: list[Values]) -> Values:
    """The mean of the first system's scores, less that of the second's if there is one."""
    runs = len(shares[0])
    means: Values = (scores[:runs] * shares[0]).sum(axis=0)
    return means if len(shares) == 1 else means - (scores[runs:] * shares[1]).sum(axis=0)


def _times_drawn(chosen: NDArray[np.int64], choices: int) -> NDArray[np.int64]:
    """How often each of the choices stands in each column, (choices, columns)."""
    columns = chosen.shape[1]
    places = chosen * columns + np.arange(columns)
    return np.bincount(places.ravel(), minlength=choices * columns).reshape(choices, columns)
