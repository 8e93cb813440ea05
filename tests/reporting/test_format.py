"""The format of numbers and texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.reporting import format as shown


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 0 min"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_never_show_sixty_of_a_unit(seconds: float, expected: str) -> None:
    assert shown.duration(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (9_999, "9,999"), (999_950, "1 M"), (1_500_000, "1.5 M"), (100_000, "100 k"), (2.5e13, "25 T")],
)
def test_counts(number: float, expected: str) -> None:
    assert shown.count(number) == expected


@pytest.mark.parametrize(("number", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (44_686_070, "44.7 MB")])
def test_sizes(number: float, expected: str) -> None:
    assert shown.size(number) == expected


@pytest.mark.parametrize(("number", "expected"), [(2.4e12, "2.4e12"), (9.96e8, "1.0e9"), (1e17, "1.0e17"), (0, "0")])
def test_flops(number: float, expected: str) -> None:
    assert shown.flops(number) == expected


@pytest.mark.parametrize(("part", "expected"), [(0, "0%"), (1, "100%"), (0.0499, "5.0%"), (0.005, "0.5%")])
def test_shares(part: float, expected: str) -> None:
    assert shown.share(part) == expected


def test_a_single_seed_has_no_spread() -> None:
    assert shown.score_with_spread(0.5, 0.0, 1) == "50.0"
    assert shown.score_with_spread(0.5, 0.012, 3) == "50.0 ± 1.2"


@settings(max_examples=50, deadline=None)
@given(st.text(), st.integers(min_value=5, max_value=60))
def test_shortened_texts_fit_and_begin_alike(text: str, characters: int) -> None:
    short = shown.shorten(text, characters)
    line = " ".join(text.split())
    assert len(short) <= characters + 1
    assert short == line or line.startswith(short.removesuffix(" …"))
