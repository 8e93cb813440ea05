"""The statistics of result tables: means, bootstrap intervals, paired permutation tests and Holm's correction."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluation.significance import (
    bootstrap_interval,
    holm,
    metric_permutation,
    numbered_groups,
    run_permutation,
)
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.experiments.trial_results import EvaluationSet, TrialResult
from endtask.seeds import generator
from endtask.task.targets import Answers

PERMUTATIONS = 10_000
LEVEL = 0.95
ALPHA = 0.05
_PERMUTATIONS_AT_ONCE = 500
_FEWEST_RUNS = 4
"""With three runs each, no p-value over runs can be below .1."""

Tree = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """A variant's score minus the reference variant's score on the same rows.

    `low` and `high` are the ends of the bootstrap interval, if computed; `p_holm` is corrected for all tests of the
    table. `p_runs` permutes runs instead of rows, as TARTAN does; None with fewer than four runs of either variant.
    """

    mean: float
    p_value: float
    p_holm: float = 1.0
    low: float | None = None
    high: float | None = None
    p_runs: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether neither the choice of rows (after Holm's correction) nor that of seeds is likely to explain it.

        >>> Difference(0.02, 0.001, 0.004, 0.01, 0.03).is_significant
        True
        >>> Difference(0.02, 0.001, 0.004, -0.01, 0.05).is_significant
        False
        """
        interval_has_zero = self.low is not None and self.high is not None and self.low <= 0 <= self.high
        return self.p_holm < ALPHA and not interval_has_zero


@dataclass(frozen=True)
class Score:
    """Scores on some rows: mean, standard deviation over all models, interval of the mean, and tested difference."""

    mean: float
    std: float
    low: float | None = None
    high: float | None = None
    difference: Difference | None = None

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64]) -> Score:
        """Return the mean and sample standard deviation (0 for a single value)."""
        numbers = [float(value) for value in values]
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0)


@dataclass(frozen=True)
class PairedTests:
    """Tests of variants against a reference variant on the same rows."""

    rows: EvaluationSet
    against: Sequence[TrialResult]
    permutations: int = PERMUTATIONS

    def scores(self, trials: Sequence[TrialResult]) -> tuple[Score, Score | None]:
        """Return a variant's scores on all rows and on leak-free rows, with intervals and tested differences.

        The reference variant has no differences.
        """
        score = self._score(trials, np.ones(len(self.rows.truth), dtype=bool))
        return score, self._score(trials, self.rows.leak_free) if self.rows.has_leaks else None

    def _score(self, trials: Sequence[TrialResult], mask: NDArray[np.bool_]) -> Score:
        truth, metric, groups = self.rows.truth[mask], self.rows.measure, self.rows.groups[mask]
        options: Tree = {"groups": groups, "level": LEVEL, "samples": self.permutations}
        predicted = predictions(trials)[:, :, mask]
        low, high = bootstrap_interval(predicted, None, truth, metric, **options)
        score = replace(Score.of(score_runs(flat(predicted), truth, metric)), low=low, high=high)
        if not self.against or trials is self.against:
            return score
        reference = predictions(self.against)[:, :, mask]
        mean = score.mean - float(score_runs(flat(reference), truth, metric).mean())
        # With paired runs, what both variants share cancels, such as a pre-training before two fine-tunings.
        paired = _seeds(trials) == _seeds(self.against)
        low, high = bootstrap_interval(predicted, reference, truth, metric, **options, paired_runs=paired)
        p_value = metric_permutation(predicted, reference, truth, metric, groups=groups, permutations=self.permutations)
        p_runs = _p_over_runs(run_scores(predicted, truth, metric), run_scores(reference, truth, metric))
        return replace(score, difference=Difference(mean, p_value, low=low, high=high, p_runs=p_runs))


def untested_scores(trials: Sequence[TrialResult], rows: EvaluationSet) -> tuple[Score, Score | None]:
    """Return a variant's mean and standard deviation on all rows and on leak-free rows."""
    predicted, leak_free = flat(predictions(trials)), rows.leak_free
    score = Score.of(score_runs(predicted, rows.truth, rows.measure))
    if not rows.has_leaks:
        return score, None
    return score, Score.of(score_runs(predicted[:, leak_free], rows.truth[leak_free], rows.measure))


def holm_corrected(differences: Sequence[Difference | None]) -> list[Difference | None]:
    """Return the differences with Holm's p-values for all of them together; None stays None.

    >>> corrected = holm_corrected([None, Difference(0.1, 0.01), Difference(0.1, 0.04)])
    >>> [difference and difference.p_holm for difference in corrected]
    [None, 0.02, 0.04]
    """
    adjusted = iter(holm([difference.p_value for difference in differences if difference is not None]))
    return [None if difference is None else replace(difference, p_holm=next(adjusted)) for difference in differences]


def loss_permutation(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: NDArray[np.int64],
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> float:
    """Return the two-sided p-value of the difference of two variants' cross-entropy, permuted by group of rows.

    `first` and `second` are sums over a row's units, averaged over the variant's trials. Both variants predict the
    same units, so the logarithms of their perplexities differ by the mean of the rows' differences. The observed
    labelling counts as a permutation.

    >>> loss_permutation(np.ones(40), np.zeros(40), np.arange(40)) < 0.001
    True
    >>> loss_permutation(np.ones(40), np.zeros(40), np.zeros(40, dtype=np.int64))
    1.0
    """
    differences = np.bincount(numbered_groups(groups, len(first)), weights=first - second)
    observed = abs(differences.sum()) * (1 - 1e-12)
    random, extreme = generator(seed, "surprise"), 0
    for start in range(0, permutations, _PERMUTATIONS_AT_ONCE):
        size = (min(_PERMUTATIONS_AT_ONCE, permutations - start), len(differences))
        signs = random.integers(0, 2, size=size, dtype=np.int8)
        extreme += int((np.abs((2.0 * signs - 1) @ differences) >= observed).sum())
    return (extreme + 1) / (permutations + 1)


def predictions(trials: Sequence[TrialResult]) -> Answers:
    """Return predictions by pre-training seed, fine-tuning seed and row."""
    return np.stack([trial.predicted for trial in trials])


def run_scores(predicted: Answers, truth: Answers, metric: Measure) -> NDArray[np.float64]:
    """Return the score of each pre-training: the mean over its fine-tunings, which are not independent."""
    scores: NDArray[np.float64] = score_runs(flat(predicted), truth, metric).reshape(predicted.shape[:2]).mean(axis=1)
    return scores


def _p_over_runs(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Return the p-value over runs; None where no choice of so few runs is rare enough."""
    return run_permutation(first, second) if min(len(first), len(second)) >= _FEWEST_RUNS else None


def flat(predicted: Answers) -> Answers:
    """Return predictions by model and row."""
    return predicted.reshape(-1, *predicted.shape[2:])


def _seeds(trials: Sequence[TrialResult]) -> list[tuple[int | None, tuple[int, ...]]]:
    return [(trial.seed, trial.finetune_seeds) for trial in trials]
