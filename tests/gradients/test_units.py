"""Units partition the texts, and their gradients are means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from endtask.gradients.rows import Units
from tests.gradients.random_rows import as_flat, random_gradients


@given(texts=st.integers(1, 50), size=st.integers(1, 60))
def test_consecutive_units_are_full_but_the_last(texts: int, size: int) -> None:
    units = Units.consecutive(texts, size)
    counts = np.bincount(units.numbers, minlength=units.count)
    assert units.count == len(counts)
    assert (np.diff(units.numbers) >= 0).all()
    assert (counts[:-1] == size).all()
    assert 0 < counts[-1] <= size
    assert units.shares.sum() == pytest.approx(units.count)


def test_single_texts_stay_as_they_are() -> None:
    gradients = random_gradients(4, torch.Generator().manual_seed(0))
    merged, numbers = Units.single(4).merge(gradients)
    assert numbers.tolist() == [0, 1, 2, 3]
    assert torch.equal(as_flat(merged), as_flat(gradients))


def test_some_texts_add_their_share_to_their_units() -> None:
    gradients = random_gradients(2, torch.Generator().manual_seed(0))
    units = Units.consecutive(9, 3)
    merged, numbers = units.merge(gradients, np.array([8, 3]))
    assert numbers.tolist() == [1, 2]
    assert torch.allclose(as_flat(merged), as_flat(gradients).flip(0) / 3)


def test_indices_must_match_the_gradients() -> None:
    with pytest.raises(ValueError, match="3 indices for the gradients of 2 texts"):
        Units.single(5).merge(random_gradients(2, torch.Generator()), np.arange(3))
