"""The permutation test against all permutations and against SciPy's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import permutation_test

from endtask.evaluate.significance import paired_permutation

VALUES = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), max_size=7)


def exact(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The share of all sign flips whose sum is as far from zero as the observed one."""
    difference = first - second
    sums = [abs(np.dot(signs, difference)) for signs in product((-1, 1), repeat=len(difference))]
    return float(np.mean(np.asarray(sums) >= abs(difference.sum()) - 1e-9))


@given(VALUES)
@settings(max_examples=40, deadline=None)
def test_near_the_exact_value_for_few_rows(rows: list[tuple[float, float]]) -> None:
    first, second = np.asarray([row[0] for row in rows]), np.asarray([row[1] for row in rows])
    p = paired_permutation(first, second, permutations=4000)
    assert p == pytest.approx(exact(first, second), abs=0.04)  # five standard errors of 4,000 draws
    assert 0 < p <= 1


@given(VALUES, st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_symmetric_and_repeatable(rows: list[tuple[float, float]], seed: int) -> None:
    first, second = np.asarray([row[0] for row in rows]), np.asarray([row[1] for row in rows])
    p = paired_permutation(first, second, permutations=300, seed=seed)
    assert paired_permutation(second, first, permutations=300, seed=seed) == p
    assert paired_permutation(first, second, permutations=300, seed=seed) == p


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_against_scipy(shift: float) -> None:
    random = np.random.default_rng(7)
    first, second = random.normal(size=60) + shift, random.normal(size=60)

    def mean_difference(one: NDArray[np.float64], other: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.mean(one - other, axis=axis)

    reference = permutation_test(
        (first, second), mean_difference, permutation_type="samples", n_resamples=9999, rng=np.random.default_rng(0)
    )
    assert paired_permutation(first, second) == pytest.approx(reference.pvalue, abs=0.03)


def test_a_plain_difference_gives_the_smallest_p_there_is() -> None:
    assert paired_permutation(np.ones(100), np.zeros(100), permutations=999) == 1 / 1000


def test_units_do_not_matter() -> None:
    random = np.random.default_rng(1)
    first, second = random.integers(0, 2, 40).astype(float), random.integers(0, 2, 40).astype(float)
    p = paired_permutation(first, second)
    assert paired_permutation(1e-12 * first, 1e-12 * second) == p
    assert paired_permutation(1e9 * first, 1e9 * second) == p


@given(st.lists(st.integers(-4, 4), max_size=12))
@settings(max_examples=100, deadline=None)
def test_ties_with_the_observed_sum_count_in_spite_of_rounding(tenths: list[int]) -> None:
    whole = np.asarray(tenths, dtype=np.float64)  # sums of whole numbers are exact
    zeros = np.zeros(len(tenths))
    p = paired_permutation(whole, zeros, permutations=300)
    assert paired_permutation(0.1 * whole, zeros, permutations=300) == p
