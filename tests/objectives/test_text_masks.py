"""Masks of a text do not depend on its batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.encoders.batch import TextBatch, lay_out
from endtask.objectives.masking import Masking, mask_texts
from tests.gradients.batches import CLS, MASK, PAD, SEP, VOCABULARY, RandomTexts, make_network, random_texts

NETWORK = make_network()
LENGTHS = st.lists(st.integers(2, 14), min_size=1, max_size=6)


def laid_out(texts: RandomTexts, numbers: list[int]) -> TextBatch:
    return lay_out(texts, np.asarray(numbers), NETWORK.layout(14))  # type: ignore[arg-type]


def masking(share: float = 0.3) -> Masking:
    return Masking(share, MASK, VOCABULARY, (PAD, CLS, SEP, MASK))


@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS, share=st.floats(0.05, 0.95), seed=st.integers(0, 9))
def test_every_text_has_its_share_and_only_open_tokens_are_hidden(lengths: list[int], share: float, seed: int) -> None:
    texts = random_texts(lengths, 3)
    batch = laid_out(texts, list(range(len(lengths))))
    masked = mask_texts(batch, np.arange(len(lengths)), masking(share), seed)
    assert masked.masked_positions is not None
    assert masked.masked_targets is not None
    counts = np.bincount(batch.text_ids.numpy()[masked.masked_positions.numpy()], minlength=len(lengths))
    opened = np.asarray(lengths) - 2
    assert counts.tolist() == [min(size, max(1, round(share * size))) if size else 0 for size in opened.tolist()]
    assert masked.masked == len(masked.masked_positions)
    assert masked.masked_targets.tolist() == batch.input_ids[masked.masked_positions].tolist()
    assert (masked.masked_targets > MASK).all()
    changed = (masked.input_ids != batch.input_ids).nonzero().squeeze(1)
    assert set(changed.tolist()) <= set(masked.masked_positions.tolist())


@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS, data=st.data())
def test_a_texts_mask_does_not_hang_on_the_texts_beside_it(lengths: list[int], data: st.DataObject) -> None:
    texts, everything = random_texts(lengths, 3), list(range(len(lengths)))
    order = data.draw(st.permutations(everything))
    one = mask_texts(laid_out(texts, everything), np.asarray(everything), masking(), 0)
    other = mask_texts(laid_out(texts, order), np.asarray(order), masking(), 0)
    for place, number in enumerate(order):
        here = one.input_ids[one.offsets[number] : one.offsets[number + 1]]
        there = other.input_ids[other.offsets[place] : other.offsets[place + 1]]
        assert here.tolist() == there.tolist()


@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS, share=st.floats(0.05, 0.95), schedule=st.integers(1, 9))
def test_no_token_is_hidden_twice_before_each_was_once(lengths: list[int], share: float, schedule: int) -> None:
    batch = laid_out(random_texts(lengths, 3), list(range(len(lengths))))
    times = np.zeros(len(batch.input_ids), dtype=np.int64)
    for turn in range(schedule):
        masked = mask_texts(batch, np.arange(len(lengths)), masking(share), 0, turn)
        assert masked.masked_positions is not None
        times[masked.masked_positions.numpy()] += 1
    is_open = batch.input_ids.numpy() > MASK
    assert not times[~is_open].any()
    for text in range(len(lengths)):
        of_text = times[is_open & (batch.text_ids.numpy() == text)]
        assert of_text.size == 0 or np.ptp(of_text) <= 1


def test_seeds_and_numbers_of_texts_make_other_masks() -> None:
    batch = laid_out(random_texts([14] * 8, 3), list(range(8)))
    numbers = np.arange(8)
    first = mask_texts(batch, numbers, masking(), 0).masked_positions
    for other in (mask_texts(batch, numbers, masking(), 1), mask_texts(batch, numbers + 8, masking(), 0)):
        assert other.masked_positions is not None
        assert first is not None
        assert other.masked_positions.tolist() != first.tolist()


def test_eight_of_ten_are_masked_and_one_is_swapped() -> None:
    batch = laid_out(random_texts([14] * 400, 3), list(range(400)))
    masked = mask_texts(batch, np.arange(400), masking(0.5), 0)
    assert masked.masked_positions is not None
    seen = masked.input_ids[masked.masked_positions]
    same = (seen == masked.masked_targets).double().mean()
    assert abs(float((seen == MASK).double().mean()) - 0.8) < 0.04  # a swapped one may be [MASK] too
    assert abs(float(same) - 0.1) < 0.04
