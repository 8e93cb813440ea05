"""The permutation test against all permutations and against SciPy; Holm against closed testing."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, permutation_test

from endtask.errors import InputError
from endtask.evaluation.significance import holm, metric_permutation, run_permutation
from tests.evaluation.old_scipy import seeded
from tests.evaluation.sklearn_scores import Labels

Case = tuple[Labels, Labels, Labels]
P_VALUES = st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.02, 0.05]), max_size=6)


@st.composite
def pairs_of_systems(draw: st.DrawFn, most_rows: int = 6) -> Case:
    """Two systems of one to three runs each, and the truth."""
    rows = draw(st.integers(1, most_rows))
    classes = st.integers(0, 3)
    first, second = (draw(arrays(np.int64, (draw(st.integers(1, 3)), rows), elements=classes)) for _ in range(2))
    return first, second, draw(arrays(np.int64, rows, elements=st.integers(0, 2)))


def random_systems(rows: int, runs: tuple[int, int] = (2, 2), *, shift: float = 0.0, seed: int = 7) -> Case:
    """Two systems that are right in half of the rows, the first more often by `shift`; 4 classes."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 4, rows)
    first, second = (
        np.where(random.random((count, rows)) < share, truth, random.integers(0, 4, (count, rows)))
        for count, share in zip(runs, (0.5 + shift, 0.5), strict=True)
    )
    return first, second, truth


def plain_score(metric: str, predicted: list[int], truth: list[int]) -> Fraction:
    if metric != "macro_f1":
        return Fraction(sum(p == t for p, t in zip(predicted, truth, strict=True)), len(truth))
    f1 = []
    for name in {*predicted, *truth}:
        right = sum(p == t == name for p, t in zip(predicted, truth, strict=True))
        f1.append(Fraction(2 * right, predicted.count(name) + truth.count(name)))
    return sum(f1, Fraction(0)) / len(f1)


def plain_p(case: Case, metric: str, groups: list[int] | None = None) -> float:
    """All swaps one by one, run for run, in fractions: nothing is rounded."""
    first, second, truth = (array.tolist() for array in case)
    group_of = groups or list(range(len(truth)))
    names = sorted(set(group_of))
    runs = len(first) * len(second)
    pairs = [(first[run % len(first)], second[run % len(second)]) for run in range(runs)]
    differences = []
    for by_group in product((False, True), repeat=len(names)):
        total, swaps = Fraction(0), [by_group[names.index(group)] for group in group_of]
        for one, other in pairs:
            mixed = [(b, a) if swap else (a, b) for a, b, swap in zip(one, other, swaps, strict=True)]
            total += plain_score(metric, [a for a, _ in mixed], truth) - plain_score(
                metric, [b for _, b in mixed], truth
            )
        differences.append(abs(total))
    return sum(difference >= differences[0] for difference in differences) / len(differences)


def sign_flips(difference: NDArray[np.float64], permutations: int) -> float:
    """The plain paired test of a mean difference: signs turned at random."""
    signs = np.random.default_rng(0).choice([-1, 1], size=(permutations, len(difference)))
    extreme = (np.abs(signs @ difference) >= abs(difference.sum()) - 1e-9).sum()
    return float((extreme + 1) / (permutations + 1))


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
@given(case=pairs_of_systems())
@settings(max_examples=40, deadline=None)
def test_few_rows_are_exact(metric: str, case: Case) -> None:
    # Three runs have thirds and sevenths in their scores: ties survive only if rounding is allowed for.
    assert metric_permutation(*case, metric) == plain_p(case, metric)


@given(case=pairs_of_systems(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_groups_of_few_rows_are_exact(case: Case, data: st.DataObject) -> None:
    rows = len(case[2])
    groups = data.draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows))
    assert metric_permutation(*case, "macro_f1", groups=np.asarray(groups)) == plain_p(case, "macro_f1", groups)


def test_copies_of_a_row_are_no_more_evidence() -> None:
    first, second, truth = random_systems(60, shift=0.15)
    copied = [np.repeat(array, 5, axis=-1) for array in (first, second, truth)]
    groups = np.repeat(np.arange(60), 5)
    alone = metric_permutation(first, second, truth, "accuracy")
    assert metric_permutation(*copied, "accuracy", groups=groups) == pytest.approx(alone, abs=0.02)
    assert metric_permutation(*copied, "accuracy") < alone / 2


def test_groups_must_be_as_many_as_rows() -> None:
    with pytest.raises(ValueError, match="2 groups are given for 3 rows"):
        metric_permutation([0, 1, 1], [1, 1, 1], [0, 1, 1], "accuracy", groups=np.array([0, 1]))


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1", "macro_f1"])
def test_few_rows_against_scipy(metric: str) -> None:
    first, second, truth = random_systems(7, shift=0.3)
    both = np.concatenate([first, second], axis=1)

    def lead(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
        scores = [[plain_score(metric, run[rows].tolist(), truth.tolist()) for run in both] for rows in (one, other)]
        return float(sum(scores[0]) - sum(scores[1])) / len(both)

    rows = np.arange(7)
    reference = permutation_test((rows, rows + 7), lead, permutation_type="samples", n_resamples=np.inf)
    assert metric_permutation(first, second, truth, metric) == pytest.approx(reference.pvalue)


@pytest.mark.parametrize("shift", [0.0, 0.08, 0.15])
def test_many_rows_against_scipy(shift: float) -> None:
    first, second, truth = random_systems(120, shift=shift)

    def lead(one: NDArray[np.float64], other: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.mean(one - other, axis=axis)

    right = [(system == truth).mean(axis=0) for system in (first, second)]
    reference = permutation_test(
        right, lead, permutation_type="samples", n_resamples=9999, vectorized=True, **seeded(permutation_test)
    )
    assert metric_permutation(first, second, truth, "accuracy") == pytest.approx(reference.pvalue, abs=0.03)


@given(case=pairs_of_systems(most_rows=7), permutations=st.sampled_from([300, 511]))
@settings(max_examples=30, deadline=None)
def test_draws_are_near_the_exact_value(case: Case, permutations: int) -> None:
    tiled = tuple(np.tile(array, 2) for array in case)  # up to 14 rows, 2**14 swaps
    drawn = metric_permutation(*tiled, "macro_f1", permutations=permutations)
    exact = metric_permutation(*tiled, "macro_f1", permutations=2**14)
    assert drawn == pytest.approx(exact, abs=0.15)  # five standard errors of 300 draws
    assert 0 < drawn <= 1


@pytest.mark.parametrize("metric", ["accuracy", "micro_f1"])
@pytest.mark.parametrize("runs", [(1, 1), (3, 3), (1, 3), (2, 3)])
def test_accuracy_is_the_plain_paired_test_of_mean_correctness(metric: str, runs: tuple[int, int]) -> None:
    first, second, truth = random_systems(150, runs, shift=0.05)
    difference = (first == truth).mean(axis=0) - (second == truth).mean(axis=0)
    p = metric_permutation(first, second, truth, metric)
    assert p == pytest.approx(sign_flips(difference, 10_000), abs=0.03)


@given(case=pairs_of_systems(most_rows=30), seed=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_symmetric_and_repeatable(case: Case, seed: int) -> None:
    first, second, truth = case
    p = metric_permutation(first, second, truth, "macro_f1", permutations=200, seed=seed)
    assert metric_permutation(second, first, truth, "macro_f1", permutations=200, seed=seed) == p
    assert metric_permutation(first, second, truth, "macro_f1", permutations=200, seed=seed) == p


@given(case=pairs_of_systems())
@settings(max_examples=30, deadline=None)
def test_repeated_runs_and_groups_change_nothing(case: Case) -> None:
    first, second, truth = case
    p = metric_permutation(first, second, truth, "macro_f1")
    assert metric_permutation(np.tile(first, (4, 1)), second, truth, "macro_f1") == p
    assert metric_permutation(first[None], second[:, None], truth, "macro_f1") == p


def test_chunks_do_not_change_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_systems(9)
    whole = metric_permutation(*case, "macro_f1")
    monkeypatch.setattr("endtask.evaluation.metrics.base.LARGEST_CHUNK", 100)
    assert metric_permutation(*case, "macro_f1") == whole
    assert metric_permutation(*case, "macro_f1", permutations=400) == pytest.approx(whole, abs=0.13)


def test_equal_systems_and_a_plain_difference() -> None:
    truth = np.tile([0, 1], 50)
    assert metric_permutation(truth, truth, truth, "macro_f1") == 1.0
    assert metric_permutation(truth, 1 - truth, truth, "accuracy", permutations=999) == 1 / 1000


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_without_a_difference_p_is_uniform(metric: str) -> None:
    found = np.asarray(
        [
            metric_permutation(*random_systems(80, (2, 2), seed=trial), metric, permutations=200, seed=trial)
            for trial in range(200)
        ]
    )
    # Four standard errors of 200 trials about each share.
    assert 0.0 < (found <= 0.05).mean() <= 0.12
    assert 0.36 <= (found <= 0.5).mean() <= 0.64
    assert 0.8 <= (found <= 0.9).mean() <= 0.98


def test_a_difference_is_found() -> None:
    assert metric_permutation(*random_systems(400, (2, 2), shift=0.15), "macro_f1") < 0.01


def test_other_rows_and_unknown_metrics_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit 3 rows"):
        metric_permutation([0, 1, 1], [0, 1], [0, 1, 1], "accuracy")
    with pytest.raises(InputError, match="metric 'f2'"):
        metric_permutation([0, 1], [0, 1], [0, 1], "f2")


@given(P_VALUES)
@settings(max_examples=60, deadline=None)
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    tests = range(len(p_values))
    families = [family for size in tests for family in combinations(tests, size + 1)]
    closed = [
        max(min(1.0, len(family) * min(p_values[test] for test in family)) for family in families if one in family)
        for one in tests
    ]
    assert holm(p_values) == pytest.approx(closed)


@given(P_VALUES.filter(bool))
@settings(max_examples=60, deadline=None)
def test_holm_is_never_more_lenient_than_the_false_discovery_rate(p_values: list[float]) -> None:
    assert (np.asarray(holm(p_values)) >= false_discovery_control(p_values) - 1e-12).all()


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_holm_refuses_what_is_no_p_value(wrong: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, wrong])


@pytest.mark.parametrize(("first", "second"), [(3, 3), (5, 4), (10, 10)])
def test_permutation_over_runs_is_scipys(first: int, second: int) -> None:
    random = np.random.default_rng(first)
    left, right = random.normal(0.02, 0.03, first), random.normal(0.0, 0.03, second)
    reference = permutation_test(
        (left, right),
        lambda a, b, axis: a.mean(axis) - b.mean(axis),
        permutation_type="independent",
        n_resamples=np.inf,
        vectorized=True,
    )
    exact = first + second < 20
    assert run_permutation(left, right) == pytest.approx(reference.pvalue, abs=1e-12 if exact else 0.02)
