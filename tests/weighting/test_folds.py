"""Folds of train that are held out round robin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.records import Example
from endtask.weighting.folds import Folds, folds_of


def rows(count: int, groups: int) -> list[Example]:
    return [Example(str(n), f"text {n}", "ab"[n % 2], group=f"g{n % groups}") for n in range(count)]


@given(count=st.integers(2, 60), groups=st.integers(2, 30), folds=st.integers(2, 12), seed=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_groups_stay_together_and_parts_are_alike(count: int, groups: int, folds: int, seed: int) -> None:
    examples, groups = rows(count, groups), min(count, groups)
    found = folds_of(examples, folds, seed, every=4).numbers
    for group in {example.group for example in examples}:
        assert len({int(part) for part, one in zip(found, examples, strict=True) if one.group == group}) == 1
    sizes = np.bincount(found)
    assert len(sizes) == min(folds, groups)
    assert sizes.min() > 0
    assert sizes.max() - sizes.min() <= max(np.bincount(np.arange(count) % groups))


def test_each_part_has_every_label_in_proportion() -> None:
    examples = [Example(str(n), f"text {n}", "rare" if n % 4 == 0 else "common") for n in range(400)]
    found = folds_of(examples, 5, seed=0, every=4).numbers
    rare = np.array([example.label == "rare" for example in examples])
    assert [int((rare & (found == part)).sum()) for part in range(5)] == [20] * 5


def test_equal_texts_are_one_group_and_the_seed_decides_on_the_rest() -> None:
    examples = [Example(str(n), f"Text {n // 2}" if n % 2 else f"text  {n // 2}", "a") for n in range(40)]
    first, again, other = (folds_of(examples, 4, seed, every=4).numbers for seed in (0, 0, 1))
    assert (first[0::2] == first[1::2]).all()
    assert (first == again).all()
    assert (first != other).any()


def test_a_part_is_held_out_for_a_while_then_the_next() -> None:
    folds = Folds(np.array([0, 1, 2, 0]), steps=3)
    held = [folds.held_out(step).tolist() for step in range(12)]
    assert held[0] == held[2] == held[9] == [True, False, False, True]
    assert held[3] == held[5] == [False, True, False, False]
    assert held[8] == [False, False, True, False]


def test_a_train_split_of_one_group_is_refused() -> None:
    with pytest.raises(InputError, match=r"pretrain\.weighting\.split.*single group") as caught:
        folds_of(rows(6, 1), 10, seed=0, every=4)
    assert "split: dev" in str(caught.value)
