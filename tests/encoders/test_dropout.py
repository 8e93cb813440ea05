"""Dropout on a CPU: what is kept, how it is scaled, how often, and from which draws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from endtask.encoders.lean_layers import Dropout

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=3)


def dropped_from(values: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    out: torch.Tensor = Dropout(p)(values)
    return out


@given(shape=SHAPES, p=st.sampled_from([0.1, 0.25, 0.5, 0.9]), seed=st.integers(0, 2**32))
def test_every_number_is_dropped_or_scaled_and_so_is_its_gradient(shape: list[int], p: float, seed: int) -> None:
    values = torch.rand(shape) + 1.0
    values.requires_grad_()
    out = dropped_from(values, p, seed)
    out.sum().backward()
    assert values.grad is not None
    kept = out != 0
    assert out[kept].allclose(values[kept] / (1 - p), rtol=2e-4)
    assert values.grad.allclose(kept / (1 - p), rtol=2e-4)
    assert torch.equal(out, dropped_from(values, p, seed)), "a seed stands for one mask"


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5])
def test_the_share_that_is_dropped_is_the_probability(p: float) -> None:
    count = 1_000_001
    gone = (dropped_from(torch.ones(count), p, seed=3) == 0).double()
    deviation = (p * (1 - p) / count) ** 0.5
    assert gone.mean() == pytest.approx(p, abs=4 * deviation + 2**-16)
    for lag in (1, 2, 3, 4, 8):  # numbers of one draw are independent too
        both = (gone[lag:] * gone[:-lag]).mean()
        assert both == pytest.approx(p * p, abs=5 * p / count**0.5)


def test_nothing_is_dropped_where_torch_drops_nothing() -> None:
    values = torch.rand(5, 3)
    assert Dropout(0.3).eval()(values) is values
    assert Dropout(0.0)(values).equal(values)
    assert not Dropout(1.0)(values).any()
    assert Dropout(0.3)(torch.empty(0, 4)).shape == (0, 4)


def test_other_seeds_give_other_masks() -> None:
    values = torch.ones(1000)
    assert not torch.equal(dropped_from(values, 0.5, 1), dropped_from(values, 0.5, 2))
