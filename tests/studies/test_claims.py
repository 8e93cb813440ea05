"""The verdicts on the papers' claims follow from the results files."""

from __future__ import annotations

import pytest

from benchmarks.results_file import read_results
from studies.claims import CLAIMS, Estimate, claim_rows, pooled, summary_of, verdict


def test_the_stored_claims_are_those_of_the_results_files() -> None:
    stored, computed = read_results("claims"), claim_rows()
    assert [claim.number for claim in CLAIMS] == list(range(1, 16))
    assert list(stored.rows) == computed, "run `python -m studies.claims` and `make docs`"
    assert stored.summary == summary_of(computed)


def test_a_claim_that_was_not_measured_is_undecided() -> None:
    for row in claim_rows():
        if row["reason"] or row["pooled"] is None:
            assert row["verdict"] == "undecided"


def test_the_mean_of_independent_differences_has_the_smaller_interval() -> None:
    found = pooled([Estimate(2.0, 0.0, 4.0, 0.05), Estimate(4.0, 2.0, 6.0, 0.01)])
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((3.0, 3.0 - 2**0.5, 3.0 + 2**0.5))
    assert verdict(found, "") == "holds"
    assert pooled([Estimate(2.0, None, None, None)]) is None
