"""Masking: the number of masked tokens, their choice, and their replacement."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.encoders.batch import IGNORED, BatchShape, TextBatch
from endtask.objectives.masking import Masking, rare_token_weights

VOCABULARY, MASK, SPECIAL = 1000, 4, (0, 1, 2, 3, 4)


def batch_of(ids: np.ndarray, padding: int = 0) -> TextBatch:
    """One text, and padding behind it."""
    tensor = torch.from_numpy(np.concatenate([ids, np.zeros(padding, dtype=np.int64)]))
    return TextBatch(
        input_ids=tensor,
        position_ids=torch.arange(len(tensor)),
        token_type_ids=torch.zeros_like(tensor),
        text_ids=torch.zeros_like(tensor),
        offsets=torch.tensor([0, len(ids), len(tensor)], dtype=torch.int32),
        longest=len(tensor),
        grid=None,
        texts=1,
        real_tokens=len(ids),
        padded_tokens=len(tensor),
        squared_lengths=len(ids) ** 2,
        even=False,
    )


def masking(probability: float = 0.15, **options: object) -> Masking:
    return Masking(probability, MASK, VOCABULARY, SPECIAL, **options)  # type: ignore[arg-type]


def apply(rule: Masking, ids: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The ids after masking, and the chosen positions."""
    batch = rule.apply(batch_of(ids), np.random.default_rng(seed))
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    assert batch.masked_targets.numpy().tolist() == ids[batch.masked_positions.numpy()].tolist()
    return batch.input_ids.numpy(), batch.masked_positions.numpy()


@given(
    size=st.integers(min_value=1, max_value=80),
    highest=st.sampled_from([6, VOCABULARY]),
    seed=st.integers(min_value=0, max_value=2**32),
    probability=st.floats(min_value=0.01, max_value=0.99),
    weighted=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_only_the_chosen_places_change_and_their_number_is_exact(
    size: int, highest: int, seed: int, probability: float, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(highest, size=size)
    weights = random.integers(0, 3, size=VOCABULARY).astype(float) if weighted else np.ones(VOCABULARY)
    before = ids.copy()
    after, chosen = apply(masking(probability, weights=weights if weighted else None), ids, seed)
    may_be_hidden = ~np.isin(before, SPECIAL) & (weights[before] > 0)
    assert may_be_hidden[chosen].all()
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    expected = max(1, round(probability * may_be_hidden.sum())) if may_be_hidden.any() else 0
    assert len(chosen) == expected
    elsewhere = np.setdiff1d(np.arange(size), chosen)
    assert (after[elsewhere] == before[elsewhere]).all()
    assert (ids == before).all()


def within(share: float, expected: float, count: int) -> bool:
    """Four standard deviations of a share."""
    return abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / count)


def test_what_becomes_of_the_chosen() -> None:
    """BERT's shares: 80% [MASK], 10% a random token."""
    ids = np.random.default_rng(1).integers(5, VOCABULARY, size=40_000)
    after, chosen = apply(masking(), ids)
    now, before = after[chosen], ids[chosen]
    assert len(chosen) == 6000
    # One random token in a thousand is the old one, one is [MASK].
    swapped = (now != MASK) & (now != before)
    assert within((now == MASK).mean(), 0.8 + 0.1 / VOCABULARY, 6000)
    assert within(swapped.mean(), 0.1 * (1 - 2 / VOCABULARY), 6000)
    assert abs(now[swapped].mean() - VOCABULARY / 2) < 4 * VOCABULARY / np.sqrt(12 * swapped.sum())


def test_every_place_is_as_likely_as_any_other() -> None:
    ids = np.arange(5, 25)
    times = np.bincount(np.concatenate([apply(masking(), ids, seed)[1] for seed in range(1000)]), minlength=20)
    assert times.sum() == 3 * 1000
    assert all(within(count / 1000, 0.15, 1000) for count in times)


def test_rare_tokens_are_drawn_in_proportion_to_their_weights() -> None:
    """One token of four is drawn at a time: the frequencies are the weights themselves."""
    ids = np.array([5, 6, 7, 8])
    weights = np.zeros(VOCABULARY)
    weights[5:9] = rare_token_weights(np.array([1, 2, 4, 8]), 1.0)
    drawn = [int(apply(masking(0.25, weights=weights), ids, seed)[1][0]) for seed in range(1200)]
    for place, share in enumerate(weights[5:9] / weights[5:9].sum()):
        assert within(drawn.count(place) / 1200, share, 1200)


def test_a_second_token_is_drawn_from_what_the_first_left() -> None:
    """Two of three without replacement: P(both of i, j) = p_i p_j (1 / (1 - p_i) + 1 / (1 - p_j))."""
    weights = np.zeros(VOCABULARY)
    weights[5:8] = share = np.array([0.6, 0.3, 0.1])
    left_out = []
    for seed in range(1200):
        _, chosen = apply(masking(0.67, weights=weights), np.array([5, 6, 7]), seed)
        left_out.append(({0, 1, 2} - set(chosen.tolist())).pop())
    for out in range(3):
        one, two = (share[place] for place in range(3) if place != out)
        assert within(left_out.count(out) / 1200, one * two * (1 / (1 - one) + 1 / (1 - two)), 1200)


def test_an_exponent_of_one_evens_out_the_words_of_a_text() -> None:
    """With weights 1 / count every distinct word is drawn about as often, however often it occurs."""
    words = np.repeat(np.arange(5, 15), 2 ** np.arange(10))
    counts = np.bincount(words, minlength=VOCABULARY)
    ids = np.random.default_rng(0).permutation(words)
    rule = masking(0.01, weights=rare_token_weights(counts, 1.0))
    plain = masking(0.01)
    weighted_draws, plain_draws = (
        np.bincount(ids[np.concatenate([apply(one, ids, seed)[1][:1] for seed in range(600)])], minlength=15)[5:]
        for one in (rule, plain)
    )
    assert plain_draws[-1] > 0.4 * 600
    assert weighted_draws[-1] < 0.25 * 600
    assert weighted_draws[0] > 5 * plain_draws[0]


def test_weights_of_counts() -> None:
    assert rare_token_weights(np.array([4, 1, 0]), 0.5).tolist() == [0.5, 1.0, 0.0]
    assert rare_token_weights(np.array([9, 2, 0]), 0.0).tolist() == [1.0, 1.0, 0.0]


def test_at_least_one_token_is_hidden() -> None:
    assert all(apply(masking(1e-9), np.array([2, 7, 3]), seed)[1].tolist() == [1] for seed in range(5))


@pytest.mark.parametrize("fixed_shape", [None, BatchShape(tokens=4, texts=2, masked=64)])
@pytest.mark.parametrize("weights", [None, np.zeros(VOCABULARY)])
def test_where_nothing_can_be_hidden_nothing_is(fixed_shape: BatchShape | None, weights: np.ndarray | None) -> None:
    ids = np.array([2, 3, 2, 1]) if weights is None else np.array([2, 9, 9, 3])
    batch = masking(weights=weights).apply(batch_of(ids), np.random.default_rng(0), fixed_shape)
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    assert batch.masked == 0
    assert len(batch.masked_positions) == len(batch.masked_targets) == (fixed_shape.masked if fixed_shape else 0)
    assert batch.masked_targets.eq(IGNORED).all()
    assert batch.input_ids.tolist() == ids.tolist()


def test_in_a_room_the_rest_is_ignored_and_padding_never_hidden() -> None:
    ids = np.random.default_rng(0).integers(5, VOCABULARY, size=40)
    rule, fixed_shape = masking(0.25), BatchShape(tokens=90, texts=3, masked=64)
    exact = rule.apply(batch_of(ids), np.random.default_rng(3))
    # Padding of an id that may be hidden elsewhere: what is real decides, not the id.
    padded = batch_of(ids, padding=50)
    padded.input_ids[40:] = 9
    roomy = rule.apply(padded, np.random.default_rng(3), fixed_shape)
    assert exact.masked_positions is not None
    assert exact.masked_targets is not None
    assert roomy.masked_positions is not None
    assert roomy.masked_targets is not None
    assert (exact.masked, roomy.masked) == (10, 10)
    assert roomy.masked_positions[:10].equal(exact.masked_positions)
    assert roomy.masked_targets[:10].equal(exact.masked_targets)
    assert (len(roomy.masked_positions), len(roomy.masked_targets)) == (64, 64)
    assert roomy.masked_targets[10:].eq(IGNORED).all()
    assert roomy.masked_positions.max() < 40
    assert roomy.input_ids[:40].equal(exact.input_ids)
    assert roomy.input_ids[40:].eq(9).all()


@pytest.mark.parametrize("field", ["position_ids", "token_type_ids", "text_ids", "offsets"])
def test_the_rest_of_the_batch_stays(field: str) -> None:
    batch = batch_of(np.array([2, 7, 8, 3, 9]))
    assert getattr(masking().apply(batch, np.random.default_rng(0)), field) is getattr(batch, field)
