"""Batches: every text once per epoch, none too large or empty, from seed and step alone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import BatchSize
from endtask.tokenization.sampling import BatchPlan

LENGTHS = st.lists(st.integers(min_value=2, max_value=128), min_size=1, max_size=150).map(np.array)
SIZES = st.integers(min_value=1, max_value=9)
SEEDS = st.integers(min_value=0, max_value=2**40)
EPOCHS = st.integers(min_value=0, max_value=50)
GROUPED = st.booleans()
# A few long texts among short ones, in batches that hold two of the longest or little more.
UNEVEN = st.integers(min_value=2, max_value=40).flatmap(
    lambda longest: st.lists(st.sampled_from([2, 3, max(2, longest - 1), longest]), min_size=1, max_size=60).map(
        lambda lengths: np.array([*lengths, longest])
    )
)


def texts(amount: int) -> BatchSize:
    return BatchSize(amount, "texts")


def tokens(amount: int) -> BatchSize:
    return BatchSize(amount, "tokens")


def epoch_of(plan: BatchPlan, epoch: int) -> list[list[int]]:
    steps = range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch)
    return [plan.positions(step).tolist() for step in steps]


def read_once(batches: list[list[int]], lengths: np.ndarray) -> bool:
    return sorted(position for batch in batches for position in batch) == list(range(len(lengths)))


@given(lengths=LENGTHS, amount=SIZES, seed=SEEDS, epoch=EPOCHS, grouped=GROUPED)
def test_an_epoch_reads_every_text_once(lengths: np.ndarray, amount: int, seed: int, epoch: int, grouped: bool) -> None:
    batches = epoch_of(BatchPlan(lengths, texts(amount), seed, "any", group_by_length=grouped), epoch)
    assert read_once(batches, lengths)
    rest = len(lengths) % amount
    assert sorted(map(len, batches), reverse=True) == [amount] * (len(lengths) // amount) + [rest] * bool(rest)


@given(
    lengths=st.one_of(LENGTHS, UNEVEN),
    more=st.one_of(st.integers(min_value=0, max_value=3), st.integers(min_value=0, max_value=2000)),
    seed=SEEDS,
    epoch=EPOCHS,
    grouped=GROUPED,
)
def test_batches_of_tokens_read_every_text_once_and_are_neither_too_large_nor_empty(
    lengths: np.ndarray, more: int, seed: int, epoch: int, grouped: bool
) -> None:
    amount = 2 * int(lengths.max()) + more
    batches = epoch_of(BatchPlan(lengths, tokens(amount), seed, "any", group_by_length=grouped), epoch)
    assert read_once(batches, lengths)
    assert min(map(len, batches)) >= 1
    assert max(int(lengths[batch].sum()) for batch in batches) <= amount


@pytest.mark.parametrize("seed", range(12))
def test_a_long_text_at_the_end_of_few_leaves_no_batch_empty(seed: int) -> None:
    plan = BatchPlan(np.array([3, 3, 10]), tokens(20), seed, "any")
    assert [len(batch) > 0 for batch in epoch_of(plan, 0)] == [True, True]


def test_batches_of_tokens_are_nearly_equal() -> None:
    lengths = np.random.default_rng(0).integers(2, 128, size=5000)
    plan = BatchPlan(lengths, tokens(4096), 0, "any")
    sums = [int(lengths[batch].sum()) for batch in epoch_of(plan, 0)]
    assert plan.batches_per_epoch == len(sums) <= 1.04 * lengths.sum() / 4096
    assert max(sums) - min(sums) < 2 * 128


@given(lengths=st.one_of(LENGTHS, UNEVEN), size=st.integers(min_value=1, max_value=600), seed=SEEDS, in_tokens=GROUPED)
def test_no_batch_of_any_epoch_exceeds_the_most(lengths: np.ndarray, size: int, seed: int, in_tokens: bool) -> None:
    amount = tokens(2 * int(lengths.max()) + size) if in_tokens else texts(size)
    plan = BatchPlan(lengths, amount, seed, "any")
    most_tokens, max_texts = plan.most
    assert most_tokens % 128 == 0
    for epoch in range(30):
        batches = epoch_of(plan, epoch)
        assert read_once(batches, lengths)
        assert max(int(lengths[batch].sum()) for batch in batches) <= most_tokens
        assert max(map(len, batches)) <= max_texts
    assert most_tokens < amount.amount + 128 or not in_tokens


def test_the_most_is_little_more_than_what_batches_hold() -> None:
    lengths = np.random.default_rng(0).integers(2, 128, size=5000)
    plan = BatchPlan(lengths, tokens(8192), 0, "any")
    batches = epoch_of(plan, 0)
    assert plan.most[0] < 1.04 * np.mean([lengths[batch].sum() for batch in batches])
    assert plan.most[1] < 1.1 * max(map(len, batches))


@given(
    lengths=LENGTHS,
    amount=SIZES,
    seed=SEEDS,
    steps=st.lists(st.integers(min_value=0, max_value=400), min_size=1, max_size=8),
    in_tokens=st.booleans(),
    grouped=GROUPED,
)
@settings(max_examples=40)
def test_a_batch_is_a_function_of_seed_and_step(
    lengths: np.ndarray, amount: int, seed: int, steps: list[int], in_tokens: bool, grouped: bool
) -> None:
    size = tokens(256 * amount) if in_tokens else texts(amount)

    def make() -> BatchPlan:
        return BatchPlan(lengths, size, seed, "any", group_by_length=grouped)

    plan = make()
    in_this_order = [plan.positions(step).tolist() for step in steps]
    backwards = [plan.positions(step).tolist() for step in reversed(steps)][::-1]
    by_new_objects = [make().positions(step).tolist() for step in steps]
    assert in_this_order == backwards == by_new_objects


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("size", [texts(4), tokens(256)])
def test_seeds_names_and_epochs_give_other_orders(size: BatchSize, grouped: bool) -> None:
    lengths = np.arange(2, 66)
    plan = BatchPlan(lengths, size, 0, "one", group_by_length=grouped)
    others = [
        epoch_of(BatchPlan(lengths, size, 1, "one", group_by_length=grouped), 0),
        epoch_of(BatchPlan(lengths, size, 0, "two", group_by_length=grouped), 0),
        epoch_of(plan, 1),
    ]
    assert all(other != epoch_of(plan, 0) for other in others)


@pytest.mark.parametrize(
    ("size", "grouped", "pinned"),
    [
        (texts(3), False, [[1, 5, 4], [3, 2, 0], [7, 6]]),
        (texts(3), True, [[4, 5, 1], [3, 0, 2], [6, 7]]),
        (tokens(22), False, [[1, 5], [4, 3], [2, 0], [7, 6]]),
        (tokens(22), True, [[5, 1], [7, 6], [3], [4, 2, 0]]),
    ],
)
def test_the_order_is_the_same_in_every_release(size: BatchSize, grouped: bool, pinned: list[list[int]]) -> None:
    plan = BatchPlan(np.array([5, 9, 3, 7, 2, 8, 4, 6]), size, 0, "pinned", group_by_length=grouped)
    assert epoch_of(plan, 0) == pinned


@pytest.mark.parametrize("size", [texts(8), tokens(512)])
def test_texts_of_a_batch_have_like_lengths_if_asked(size: BatchSize) -> None:
    lengths = np.random.default_rng(0).integers(2, 128, size=32 * 8 * 4)

    def padding(grouped: bool) -> float:
        batches = epoch_of(BatchPlan(lengths, size, 0, "any", group_by_length=grouped), 0)
        return float(sum((lengths[batch].max() - lengths[batch]).sum() for batch in batches) / lengths.sum())

    assert padding(True) < 0.06
    assert padding(False) > 0.5


def test_no_batch_of_like_lengths_is_much_wider_than_it_is_full() -> None:
    """Also where it begins in one window of sorted texts and ends in the next: a padded table must hold it."""
    lengths = np.clip(np.random.default_rng(0).lognormal(3.3, 0.8, size=4000).astype(int), 3, 128)
    plan = BatchPlan(lengths, tokens(512), 0, "any", group_by_length=True)
    assert max(len(batch) * lengths[batch].max() for batch in epoch_of(plan, 0)) < 2 * 512


def test_batches_of_short_and_long_texts_come_mixed() -> None:
    lengths = np.arange(2, 2 + 32 * 8)
    plan = BatchPlan(lengths, texts(8), 0, "any", group_by_length=True)
    means = [lengths[batch].mean() for batch in epoch_of(plan, 0)]
    assert means != sorted(means)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_small_set_does_not_meet_in_the_same_batches_every_epoch(grouped: bool) -> None:
    lengths = np.random.default_rng(0).integers(2, 48, size=240)
    plan = BatchPlan(lengths, texts(16), 0, "small", group_by_length=grouped)
    first, second = (
        {frozenset(pair) for batch in epoch_of(plan, epoch) for pair in combinations(batch, 2)} for epoch in (0, 1)
    )
    assert len(first & second) < 0.35 * len(first)


def test_nothing_to_sample_from_is_refused() -> None:
    with pytest.raises(ValueError, match="external: no texts"):
        BatchPlan(np.array([], dtype=np.int64), texts(4), 0, "external")


def test_a_batch_of_less_than_two_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="task: a batch of 99tok is less than two texts of 50 tokens"):
        BatchPlan(np.array([50, 3]), tokens(99), 0, "task")
    assert BatchPlan(np.array([50, 3]), tokens(100), 0, "task").batches_per_epoch == 2


def test_texts_that_never_fit_the_most_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = BatchPlan(np.array([2, 3, 4]), texts(1), 0, "task")
    tokens_there, texts_there = plan.most
    monkeypatch.setattr(plan, "_largest", lambda batches: (tokens_there + 1, texts_there))
    with pytest.raises(ValueError, match="task: texts too uneven for batches of 1"):
        plan.positions(0)
