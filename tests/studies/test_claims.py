"""The verdicts on the papers' claims follow from the results files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results_file import read_results, write_results
from studies import attention, estimates
from studies.claim_list import CLAIMS
from studies.claims import claim_rows, row_of, summary_of
from studies.estimates import Comparison, Estimate, estimate, pooled, verdict


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


def test_a_claim_is_decided_as_soon_as_its_results_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "RESULTS", tmp_path)
    monkeypatch.setattr(estimates, "read_results", lambda name: read_results(name, tmp_path))
    undecided = next(row for row in claim_rows() if row["claim"] == 3)
    assert (undecided["verdict"], undecided["reason"]) == ("undecided", "not run: `studies/tlm-rho2.yaml`")
    pair = {
        "kind": "pair",
        "task": "sciie",
        "cell": "rho2-20",
        "over": "rho2-0",
        "lead": 0.021,
        "interval": [0.01, 0.03],
    }
    write_results("tlm_rho2", "endtask compare", [{**pair, "p": 0.001}], {"rows": 1}, tmp_path)
    row = next(row for row in claim_rows() if row["claim"] == 3)
    assert (row["verdict"], row["reason"], row["pooled"]["difference"]) == ("holds", "", 2.1)
    assert [part["task"] for part in row["comparisons"]] == ["SciERC"]


def test_a_weight_is_compared_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = [
        {"kind": "curve", "task": "sciie", "cell": "own-head", "seed": seed, "weights": {"task": weight}}
        for seed, weight in enumerate((0.97, 0.98, 0.99))
    ]
    monkeypatch.setattr(Comparison, "rows", lambda self: curves)
    found = estimate(Comparison("tartan_weights", "sciie", "own-head", "0.95", (), "task weight"))
    assert found is not None
    assert found.mean == pytest.approx(3.0)
    assert verdict(found) == "holds"
    assert estimate(Comparison("tartan_weights", "sciie", "other", "0.95", (), "task weight")) is None


def store_heads(folder: Path, counts: list[tuple[int, int]], *, tokens: int = 10**9) -> None:
    """Store runs with these numbers of positional and vertical heads of 20, beside an encoder with 2 and 8."""
    same = {"task": "sciie", "heads": 20}
    trained = {"state": "pre-trained", "tokens": tokens, "parameters": 10**6}
    rows = [
        {"kind": "run", **same, "cell": "tlm", "seed": seed, "positional": near, "vertical": fixed, **trained}
        for seed, (near, fixed) in enumerate(counts)
    ]
    rows.append(
        {"kind": "checkpoint", **same, "cell": "package:x", "positional": 2, "vertical": 8, "is_reference": True}
    )
    write_results("attention", "a study", rows, attention.summary_of(rows, "package:x"), folder)


@pytest.mark.parametrize(
    ("counts", "tokens", "expected"),
    [
        ([(6, 1), (7, 2), (6, 2)], 10**9, "holds"),
        ([(6, 14), (7, 15), (6, 15)], 10**9, "does not hold"),  # more of both
        ([(6, 1), (7, 14), (6, 8)], 10**9, "undecided"),
        ([(6, 1), (6, 1), (6, 1)], 10**9, "undecided"),  # without spread there is no interval
        ([(6, 1), (7, 2), (6, 2)], 3 * 10**6, "undecided"),  # three tokens a weight
    ],
)
def test_a_claim_of_two_parts_needs_both(
    counts: list[tuple[int, int]], tokens: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_heads(tmp_path, counts, tokens=tokens)
    monkeypatch.setattr(estimates, "RESULTS", tmp_path)
    monkeypatch.setattr(estimates, "read_results", lambda name: read_results(name, tmp_path))
    row = row_of(CLAIMS[14])
    assert row["verdict"] == expected
    assert row["reason"].startswith("the runs read 3.0 million tokens, 3 a weight") == (tokens < 10**9)
    near, fixed = (sum(kind) / 60 for kind in zip(*counts, strict=True))
    differences = [part["difference"] for part in row["comparisons"]]
    assert differences == pytest.approx([100 * (near - 0.1), 100 * (0.4 - fixed)], abs=1e-3)
