"""Greedy matching against a ridge regression solved anew for every pick."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.gradients.rows import Block, Gradients, LinearRows
from endtask.select.influence.greedy import Sketches, match, unit_length


def slow_match(vectors: np.ndarray, targets: np.ndarray, count: int) -> list[int]:
    ridge = (vectors**2).sum(1).mean() * count / vectors.shape[1]
    picked: list[int] = []
    while len(picked) < count:
        target = targets[len(picked) % len(targets)]
        rows = vectors[picked]
        weights = np.linalg.solve(rows @ rows.T + ridge * np.eye(len(picked)), rows @ target)
        agreement = vectors @ (target - weights @ rows)
        agreement[picked] = -np.inf
        picked.append(int(agreement.argmax()))
    return picked


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), units=st.integers(2, 15), classes=st.integers(1, 3), data=st.data())
def test_picks_are_those_of_the_slow_way(seed: int, units: int, classes: int, data: st.DataObject) -> None:
    random = np.random.default_rng(seed)
    vectors, targets = random.normal(size=(units, 5)), random.normal(size=(classes, 5))
    count = data.draw(st.integers(1, units))
    found = match(torch.from_numpy(vectors), torch.from_numpy(targets), count)
    assert found.tolist() == slow_match(vectors, targets, count)


def test_a_second_copy_is_worth_less_than_something_new() -> None:
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.6, 0.8]]).double()
    assert 3 in match(vectors, torch.tensor([[1.0, 0.5]]).double(), 2).tolist()


def test_very_many_are_picked_several_at_a_time() -> None:
    vectors = torch.randn(5000, 4, generator=torch.Generator().manual_seed(0))
    found = match(vectors, torch.ones(2, 4), 4100)
    assert len(set(found.tolist())) == 4100


def test_products_of_sketches_are_near_those_of_gradients() -> None:
    random = torch.Generator().manual_seed(0)
    blocks = {}
    flat = torch.zeros(3, 0)
    for name in ("one", "two"):
        left, right = torch.randn(3, 8, generator=random), torch.randn(3, 6, generator=random)
        blocks[Block(name, 8, 6)] = (LinearRows(left=left, right=right, owners=torch.arange(3)),)
        flat = torch.cat([flat, torch.einsum("nh,nw->nhw", left, right).flatten(1)], dim=1)
    found = unit_length(Sketches(4000, 0).of(Gradients(3, blocks)))
    assert found.shape == (3, 4000)
    exact = unit_length(flat)
    assert float((found @ found.T - exact @ exact.T).abs().max()) < 0.12


def test_a_vector_of_zeros_stays_one() -> None:
    assert unit_length(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist() == [
        [0.0, 0.0],
        [0.6000000238418579, 0.800000011920929],
    ]
