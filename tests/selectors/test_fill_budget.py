"""Budgets are filled exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import SizeBudget, resolve
from endtask.errors import InputError
from endtask.selectors.base import fill

SIZES = st.lists(st.integers(1, 50), max_size=12)


def longest_fitting(sizes: list[int], limit: float) -> int:
    """Add passages one by one until one does not fit."""
    total = count = 0
    for size in sizes:
        total += size
        if total > limit:
            break
        count += 1
    return count


@given(SIZES, st.integers(1, 300), st.randoms(use_true_random=False))
def test_bytes_fill_to_the_last_passage_that_fits(sizes: list[int], limit: int, random: object) -> None:
    order = np.asarray(sorted(range(len(sizes)), key=lambda _: random.random()), dtype=np.int64)  # type: ignore[attr-defined]
    kept = fill(order, np.asarray(sizes, dtype=np.int64), SizeBudget.parse(f"{limit}B"), corpus_bytes=sum(sizes))
    count = longest_fitting([sizes[place] for place in order], limit)
    assert kept.tolist() == order[:count].tolist()


@given(SIZES, st.integers(1, 100))
def test_a_share_is_of_the_whole_corpus(sizes: list[int], percent: int) -> None:
    corpus_bytes = 2 * sum(sizes)  # half of it was not retrieved
    order = np.arange(len(sizes))
    budget = SizeBudget.parse(f"{percent}%")
    kept = fill(order, np.asarray(sizes, dtype=np.int64), budget, corpus_bytes=corpus_bytes)
    assert len(kept) == longest_fitting([100 * size for size in sizes], percent * corpus_bytes)


@given(SIZES, st.integers(1, 15))
def test_passages_are_counted(sizes: list[int], amount: int) -> None:
    order = np.arange(len(sizes))[::-1]
    kept = fill(order, np.asarray(sizes), SizeBudget.parse(f"{amount}passages"), corpus_bytes=sum(sizes))
    assert kept.tolist() == order[:amount].tolist()


def test_no_budget_keeps_all_in_order() -> None:
    order = np.asarray([2, 0, 1])
    assert fill(order, np.asarray([5, 5, 5]), None, corpus_bytes=15).tolist() == [2, 0, 1]


def test_a_share_that_floats_cannot_hold_still_fits_exactly() -> None:
    assert 0.29 * 100 < 29
    kept = fill(np.arange(2), np.asarray([29, 1]), SizeBudget.parse("29%"), corpus_bytes=100)
    assert kept.tolist() == [0]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("-5MB", "'-5MB' is not an amount with a unit; write it like 300MB, 50000passages, 5% or 20%retrieved"),
        ("-5%", "'-5%' is not an amount with a unit"),
        ("0passages", "'0passages' must be more than zero"),
        ("0%", "'0%' must be more than zero"),
        ("120%", "'120%' is more than the whole corpus"),
        ("nanMB", "'nanMB' is not an amount with a unit"),
        ("1e999MB", "'1e999MB' is more than"),
        ("300 megabytes", "'300 megabytes' is not an amount with a unit"),
        ("lots", "'lots' is not an amount with a unit"),
        ("", "'' is not an amount with a unit"),
        (0, "'0' is not an amount with a unit"),
        (-3, "'-3' is not an amount with a unit"),
        (["5%"], "['5%'] needs a unit"),
    ],
)
def test_a_budget_that_is_none_is_one_clear_line(budget: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve({"select": {"budget": budget}})
    assert str(caught.value).startswith(f"key 'select.budget': {said}")
    assert "\n" not in str(caught.value)
