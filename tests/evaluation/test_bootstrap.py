"""Bootstrap intervals against SciPy over rows, and against a loop over groups and runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import bootstrap, norm

from endtask.evaluation.significance import bootstrap_interval
from endtask.evaluation.task_metrics import score_runs
from tests.evaluation.old_scipy import seeded
from tests.evaluation.sklearn_scores import Labels

Interval = tuple[float, float]


def random_system(truth: Labels, shape: tuple[int, ...], share: float, seed: int) -> Labels:
    """Predictions that are right in a share of the rows."""
    random = np.random.default_rng(seed)
    size = (*shape, len(truth))
    return np.where(random.random(size) < share, truth, random.integers(0, 4, size))


TRUTH = np.random.default_rng(0).integers(0, 4, 150)
FIRST, SECOND = (random_system(TRUTH, (2,), share, seed) for seed, share in ((1, 0.6), (2, 0.4)))


def scipy_interval(statistic: Any, samples: int) -> Interval:
    found = bootstrap(
        (np.arange(len(TRUTH)),),
        statistic,
        n_resamples=samples,
        method="percentile",
        paired=True,
        vectorized=False,
        **seeded(bootstrap),
    ).confidence_interval
    return float(found.low), float(found.high)


@pytest.mark.parametrize(("metric", "alone"), [("accuracy", True), ("macro_f1", True), ("macro_f1", False)])
def test_rows_alone_against_scipy(metric: str, alone: bool) -> None:
    def statistic(rows: NDArray[np.int64]) -> float:
        lead = score_runs(FIRST[:, rows], TRUTH[rows], metric).mean()
        return float(lead if alone else lead - score_runs(SECOND[:, rows], TRUTH[rows], metric).mean())

    ours = bootstrap_interval(FIRST, None if alone else SECOND, TRUTH, metric, resample_runs=False)
    assert ours == pytest.approx(scipy_interval(statistic, 500), abs=0.02)


def plain_interval(first: Labels, second: Labels, samples: int, *, paired: bool) -> Interval:
    """Draw groups, runs in them and rows, one by one."""
    random = np.random.default_rng(3)
    leads = []
    for _ in range(samples):
        rows = random.integers(0, len(TRUTH), len(TRUTH))
        drawn: list[tuple[int, int]] = []
        means = []
        for system in (first, second):
            if not (paired and drawn):
                groups, runs, _ = system.shape
                drawn = [
                    (group, run)
                    for group in random.integers(0, groups, groups)
                    for run in random.integers(0, runs, runs)
                ]
            means.append(np.mean([(system[group, run, rows] == TRUTH[rows]).mean() for group, run in drawn]))
        leads.append(means[0] - means[1])
    low, high = np.quantile(leads, [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize("paired", [True, False])
def test_groups_runs_and_rows_against_a_plain_loop(paired: bool) -> None:
    # Groups differ much and runs a little, alike in both systems, so that each level and the pairing matter.
    shares = [[0.3, 0.35], [0.5, 0.55], [0.8, 0.85]]
    first, second = (
        np.asarray([[random_system(TRUTH, (), share + more, seed) for share in group] for group in shares])
        for seed, more in ((1, 0.05), (2, 0.0))
    )
    ours = bootstrap_interval(first, second, TRUTH, "accuracy", paired_runs=paired)
    assert ours == pytest.approx(plain_interval(first, second, 800, paired=paired), abs=0.045)


def test_runs_that_are_wholly_right_or_wrong() -> None:
    runs = np.stack([TRUTH, TRUTH, TRUTH + 4, TRUTH + 4])  # means of 4 drawn runs: 0 to 1 in quarters
    assert bootstrap_interval(runs, None, TRUTH, "accuracy") == (0.0, 1.0)
    assert bootstrap_interval(runs, None, TRUTH, "accuracy", level=0.5) == (0.25, 0.75)
    assert bootstrap_interval(runs, None, TRUTH, "accuracy", resample_runs=False) == (0.5, 0.5)


def test_runs_of_one_group_are_not_taken_for_independent_ones() -> None:
    groups = np.asarray([[TRUTH] * 10, [TRUTH + 4] * 10])
    flat = bootstrap_interval(groups.reshape(20, -1), None, TRUTH, "accuracy")
    grouped = bootstrap_interval(groups, None, TRUTH, "accuracy")
    assert grouped == pytest.approx((0.0, 1.0))
    assert 0.2 < flat[0] < flat[1] < 0.8


def test_one_group_of_runs_is_so_many_runs() -> None:
    runs = random_system(TRUTH, (5,), 0.5, 4)
    as_group, as_runs = (bootstrap_interval(system, None, TRUTH, "macro_f1") for system in (runs[None], runs))
    assert as_group == pytest.approx(as_runs, abs=0.01)


def test_luck_that_is_shared_cancels_in_paired_runs() -> None:
    runs = np.stack([TRUTH, TRUTH + 4])
    assert bootstrap_interval(runs, runs, TRUTH, "accuracy", paired_runs=True) == (0.0, 0.0)
    assert bootstrap_interval(runs, runs, TRUTH, "accuracy") == (-1.0, 1.0)


def test_single_runs_have_nothing_to_draw() -> None:
    both = [bootstrap_interval(FIRST[0], SECOND[0], TRUTH, "macro_f1", resample_runs=runs) for runs in (True, False)]
    assert both[0] == both[1]


def test_the_other_way_round_is_the_same_with_the_sign_turned() -> None:
    low, high = bootstrap_interval(FIRST, SECOND, TRUTH, "macro_f1", resample_runs=False)
    assert bootstrap_interval(SECOND, FIRST, TRUTH, "macro_f1", resample_runs=False) == pytest.approx((-high, -low))


def test_repeatable_and_wider_at_a_higher_level() -> None:
    usual = bootstrap_interval(FIRST, SECOND, TRUTH, "macro_f1", samples=2000)
    assert bootstrap_interval(FIRST, SECOND, TRUTH, "macro_f1", samples=2000) == usual
    assert bootstrap_interval(FIRST, SECOND, TRUTH, "macro_f1", samples=2000, seed=1) != usual
    low, high = bootstrap_interval(FIRST, SECOND, TRUTH, "macro_f1", samples=2000, level=0.99)
    assert low < usual[0] < usual[1] < high


def test_chunks_hold_the_same_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap_interval(FIRST, SECOND, TRUTH, "accuracy", samples=3000)
    monkeypatch.setattr("endtask.evaluation.metrics.base.LARGEST_CHUNK", 20_000)
    assert bootstrap_interval(FIRST, SECOND, TRUTH, "accuracy", samples=3000) == pytest.approx(whole, abs=0.015)


def test_an_interval_over_rows_is_as_wide_as_theory_says() -> None:
    right = np.arange(1000) < 700
    low, high = bootstrap_interval(np.where(right, 0, 1), None, np.zeros(1000, dtype=int), "accuracy")
    half = norm.ppf(0.975) * np.sqrt(0.7 * 0.3 / 1000)
    assert (low, high) == pytest.approx((0.7 - half, 0.7 + half), abs=0.003)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for trial in range(100):
        random = np.random.default_rng(trial)
        right = random.random(200) < 0.7
        low, high = bootstrap_interval(
            np.where(right, 0, 1), None, np.zeros(200, dtype=int), "accuracy", level=0.9, samples=400, seed=trial
        )
        held += low <= 0.7 <= high
    assert 0.78 <= held / 100 <= 0.99


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_that_is_none(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        bootstrap_interval(FIRST, None, TRUTH, "accuracy", level=level)


def test_runs_that_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="runs cannot be paired"):
        bootstrap_interval(FIRST, SECOND[:1], TRUTH, "accuracy", paired_runs=True)


def test_groups_of_rows_against_a_plain_loop() -> None:
    random, sizes = np.random.default_rng(5), np.arange(1, 16)  # 120 rows in 15 groups
    groups = random.permutation(np.repeat(np.arange(15), sizes))
    truth = TRUTH[:120]
    # A group is right or wrong as a whole: rows say little that their group did not.
    first = np.where(random.random(15)[groups] < 0.6, truth, truth + 1)
    means = []
    for _ in range(2000):
        rows = np.concatenate([np.flatnonzero(groups == group) for group in random.integers(0, 15, 15)])
        means.append((first[rows] == truth[rows]).mean())
    low, high = bootstrap_interval(first, None, truth, "accuracy", groups=groups)
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.03)
    narrow = bootstrap_interval(first, None, truth, "accuracy")
    assert narrow[1] - narrow[0] < 0.7 * (high - low)
