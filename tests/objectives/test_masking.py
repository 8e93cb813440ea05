"""BERT's masking."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.models.batch import TextBatch
from endtask.objectives.masking import Masking

VOCABULARY, MASK, SPECIAL = 1000, 4, (0, 1, 2, 3, 4)


def batch_of(ids: np.ndarray) -> TextBatch:
    tensor = torch.from_numpy(ids)
    return TextBatch(tensor, (tensor != 0).long(), torch.zeros_like(tensor))


def masked(ids: np.ndarray, probability: float = 0.15, seed: int = 0) -> TextBatch:
    return Masking(probability, MASK, VOCABULARY, SPECIAL).apply(batch_of(ids), np.random.default_rng(seed))


@given(
    rows=st.integers(min_value=1, max_value=5),
    width=st.integers(min_value=1, max_value=20),
    highest=st.sampled_from([6, VOCABULARY]),
    seed=st.integers(min_value=0, max_value=2**32),
    probability=st.floats(min_value=0.01, max_value=0.99),
)
@settings(max_examples=60, deadline=None)
def test_only_the_chosen_places_change_and_the_targets_are_what_stood_there(
    rows: int, width: int, highest: int, seed: int, probability: float
) -> None:
    ids = np.random.default_rng(seed).integers(highest, size=(rows, width))
    before = ids.copy()
    batch = masked(ids, probability, seed)
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    chosen = batch.masked_positions.numpy()
    assert (batch.masked_targets.numpy() == before.reshape(-1)[chosen]).all()
    assert not np.isin(batch.masked_targets.numpy(), SPECIAL).any()
    elsewhere = np.setdiff1d(np.arange(before.size), chosen)
    assert (batch.input_ids.numpy().reshape(-1)[elsewhere] == before.reshape(-1)[elsewhere]).all()
    assert (ids == before).all()
    assert len(set(chosen.tolist())) == len(chosen) >= (1 if (~np.isin(before, SPECIAL)).any() else 0)


def test_the_rates_are_berts() -> None:
    ids = np.random.default_rng(1).integers(5, VOCABULARY, size=(400, 100))
    batch = masked(ids)
    assert batch.masked_positions is not None
    chosen = batch.masked_positions.numpy()
    now, before = batch.input_ids.numpy().reshape(-1)[chosen], ids.reshape(-1)[chosen]
    unmasked = now != MASK
    shares = {
        "chosen": (len(chosen) / ids.size, 0.15, ids.size),
        "mask": ((now == MASK).mean(), 0.8, len(chosen)),
        "kept": ((now == before).mean(), 0.1, len(chosen)),
        "swapped": ((unmasked & (now != before)).mean(), 0.1, len(chosen)),
    }
    for name, (share, expected, count) in shares.items():
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / count), name
    swapped = now[unmasked & (now != before)]
    assert abs(swapped.mean() - VOCABULARY / 2) < 4 * VOCABULARY / np.sqrt(12 * len(swapped))


def test_at_least_one_token_is_hidden() -> None:
    ids = np.array([[2, 7, 3, 0]])
    batches = [masked(ids, probability=1e-9, seed=seed) for seed in range(5)]
    assert all(batch.masked_positions is not None and batch.masked_positions.tolist() == [1] for batch in batches)


def test_texts_of_special_tokens_alone_have_nothing_to_hide() -> None:
    batch = masked(np.array([[2, 3], [2, 1]]))
    assert batch.masked_positions is not None
    assert batch.masked_positions.tolist() == []
    assert batch.input_ids.tolist() == [[2, 3], [2, 1]]


@pytest.mark.parametrize("field", ["attention_mask", "token_type_ids"])
def test_the_rest_of_the_batch_stays(field: str) -> None:
    ids = np.array([[2, 7, 8, 3, 0], [2, 9, 9, 9, 3]])
    assert getattr(masked(ids), field).equal(getattr(batch_of(ids), field))
