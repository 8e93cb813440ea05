"""Batches: every text once per epoch, from seed and step alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.text.sampling import BatchPlan

LENGTHS = st.lists(st.integers(min_value=2, max_value=128), min_size=1, max_size=150).map(np.array)
SIZES = st.integers(min_value=1, max_value=9)
SEEDS = st.integers(min_value=0, max_value=2**40)


def epoch_of(plan: BatchPlan, epoch: int) -> list[list[int]]:
    steps = range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch)
    return [plan.positions(step).tolist() for step in steps]


@given(lengths=LENGTHS, batch_size=SIZES, seed=SEEDS, epoch=st.integers(min_value=0, max_value=50))
@settings(max_examples=60, deadline=None)
def test_an_epoch_reads_every_text_once(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> None:
    batches = epoch_of(BatchPlan(lengths, batch_size, seed, "any"), epoch)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    rest = len(lengths) % batch_size
    assert sorted(map(len, batches), reverse=True) == [batch_size] * (len(lengths) // batch_size) + [rest] * bool(rest)


@given(
    lengths=LENGTHS,
    batch_size=SIZES,
    seed=SEEDS,
    steps=st.lists(st.integers(min_value=0, max_value=400), min_size=1, max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_a_batch_is_a_function_of_seed_and_step(
    lengths: np.ndarray, batch_size: int, seed: int, steps: list[int]
) -> None:
    plan = BatchPlan(lengths, batch_size, seed, "any")
    in_this_order = [plan.positions(step).tolist() for step in steps]
    backwards = [plan.positions(step).tolist() for step in reversed(steps)][::-1]
    by_new_objects = [BatchPlan(lengths, batch_size, seed, "any").positions(step).tolist() for step in steps]
    assert in_this_order == backwards == by_new_objects


def test_seeds_names_and_epochs_give_other_orders() -> None:
    lengths = np.arange(2, 66)
    plan = BatchPlan(lengths, 4, 0, "one")
    others = [
        epoch_of(BatchPlan(lengths, 4, 1, "one"), 0),
        epoch_of(BatchPlan(lengths, 4, 0, "two"), 0),
        epoch_of(plan, 1),
    ]
    assert all(other != epoch_of(plan, 0) for other in others)


def test_the_order_is_the_same_in_every_release() -> None:
    batches = epoch_of(BatchPlan(np.array([5, 9, 3, 7, 2, 8, 4, 6]), 3, 0, "pinned"), 0)
    assert batches == [[4, 5, 1], [2, 0, 3], [6, 7]]


def test_texts_of_a_batch_have_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(2, 128, size=32 * 8 * 4)
    batches = epoch_of(BatchPlan(lengths, 8, 0, "any"), 0)
    padding = sum(int((lengths[batch].max() - lengths[batch]).sum()) for batch in batches)
    assert padding < 0.05 * lengths.sum()


def test_batches_of_short_and_long_texts_come_mixed() -> None:
    lengths = np.arange(2, 2 + 32 * 8)
    means = [lengths[batch].mean() for batch in epoch_of(BatchPlan(lengths, 8, 0, "any"), 0)]
    assert means != sorted(means)


def test_a_small_set_does_not_meet_in_the_same_batches_every_epoch() -> None:
    plan = BatchPlan(np.random.default_rng(0).integers(2, 48, size=240), 16, 0, "small")
    first, second = (
        {frozenset(pair) for batch in epoch_of(plan, epoch) for pair in combinations(batch, 2)} for epoch in (0, 1)
    )
    assert len(first & second) < 0.35 * len(first)


def test_nothing_to_sample_from_is_refused() -> None:
    with pytest.raises(ValueError, match="external: no texts"):
        BatchPlan(np.array([], dtype=np.int64), 4, 0, "external")
