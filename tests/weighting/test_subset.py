"""A few of many names in turn."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.weighting.subset import Subset

COUNTS = st.integers(min_value=1, max_value=12)


@given(count=COUNTS, size=COUNTS, rounds=st.integers(1, 4), seed=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_each_name_comes_as_often_as_any_other(count: int, size: int, rounds: int, seed: int) -> None:
    names = [f"n{number}" for number in range(count)]
    subset, seen = Subset(names, size, seed), Counter[str]()
    for step in range(rounds * count):
        chosen = subset.at(step)
        assert len(set(chosen)) == len(chosen) == min(size, count)
        seen.update(chosen)
    assert set(seen.values()) == {rounds * min(size, count)}
    assert subset.share == min(size, count) / count


def test_the_order_depends_on_the_seed_alone() -> None:
    names = [f"n{number}" for number in range(9)]
    drawn = [[Subset(names, 3, seed).at(step) for step in (5, 40)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_all_of_them_keep_their_order() -> None:
    assert Subset(["b", "a"], 5, seed=0).at(7) == ["b", "a"]
    assert Subset([], 3, seed=0).at(2) == []
