"""Few rows: the same as cutting off a singular value decomposition of the whole matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.gradients.arithmetic import matrices
from endtask.gradients.costs import Work
from endtask.gradients.low_rank import truncate
from endtask.gradients.options import Options
from endtask.gradients.plan import make_plan
from endtask.gradients.rows import Gradients, LinearRows
from endtask.gradients.targets import Targets, products
from endtask.gradients.units import Units
from tests.gradients.random_rows import LINEAR, random_gradients


def linear_rows(count: int, seed: int) -> LinearRows:
    (rows,) = random_gradients(count, torch.Generator().manual_seed(seed)).blocks[LINEAR]
    assert isinstance(rows, LinearRows)
    return rows


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 5), rank=st.integers(1, 5))
def test_the_largest_singular_vectors_are_kept(seed: int, count: int, rank: int) -> None:
    rows = linear_rows(count, seed)
    kept, share = truncate(rows, count, rank)
    whole = matrices((rows,), count, LINEAR)
    left, values, right = torch.linalg.svd(whole, full_matrices=False)
    expected = (left[..., :rank] * values[:, None, :rank]) @ right[:, :rank]
    assert torch.allclose(matrices((kept,), count, LINEAR), expected, atol=1e-6)
    assert torch.bincount(kept.owners, minlength=count).max() <= rank
    energy = values.square()
    expected_share = torch.where(energy.sum(1) > 0, energy[:, :rank].sum(1) / energy.sum(1), 1)
    assert torch.allclose(share, expected_share, atol=1e-9)


def one_by_one(targets: Gradients) -> Iterator[tuple[Gradients, NDArray[np.int64]]]:
    """The same gradients, a text at a time."""
    for text in range(targets.count):
        alone = (torch.arange(targets.count) == text).double()
        yield targets.merged(torch.zeros(targets.count, dtype=torch.int64), alone, 1), np.array([text])


def test_enough_rows_are_exact_however_targets_come() -> None:
    random = torch.Generator().manual_seed(3)
    candidates, targets = random_gradients(4, random), random_gradients(6, random)
    units = Units.consecutive(6, 4)
    plan = make_plan(candidates, targets, Work(10, 6, 2), Options(way="low_rank", rank=4))
    kept = Targets(plan, units)
    for part, texts in one_by_one(targets):
        kept.add(part, texts)
    merged, _ = units.merge(targets)
    for measure in ("dot", "cosine"):
        assert torch.allclose(kept.scores(candidates, measure), products(candidates, merged, measure), atol=1e-7)
    assert kept.lowest_share == pytest.approx(1)


def test_too_few_rows_are_close_and_the_loss_is_on_record() -> None:
    random = torch.Generator().manual_seed(3)
    candidates, targets = random_gradients(4, random), random_gradients(6, random)
    plan = make_plan(candidates, targets, Work(10, 6, 6), Options(way="low_rank", rank=1))
    kept = Targets(plan, Units.single(6))
    kept.add(targets)
    exact = products(candidates, targets)
    lengths = (products(candidates, candidates).diagonal()[:, None] * products(targets, targets).diagonal()).sqrt()
    errors = (kept.scores(candidates) - exact).abs() / lengths
    assert 0 < errors.max() <= (1 - kept.lowest_share) ** 0.5 + 1e-9
    assert kept.lowest_share < 0.99


def test_an_owner_without_rows_stays_without() -> None:
    rows = linear_rows(3, 0).part(slice(0, 0))
    kept, share = truncate(rows, 3, 2)
    assert len(kept.owners) == 0
    assert share.tolist() == [1, 1, 1]


def test_the_share_is_that_of_the_whole_unit_before_any_score() -> None:
    random = torch.Generator().manual_seed(3)
    targets = random_gradients(8, random, most_rows=1)  # each text alone is held whole
    units = Units.alike(np.zeros(8, dtype=np.int64))
    kept = Targets(make_plan(targets, targets, Work(10, 8, 1), Options(way="low_rank", rank=1)), units)
    for part, texts in one_by_one(targets):
        kept.add(part, texts)
    merged, _ = units.merge(targets)
    linear = [rows for uses in merged.blocks.values() for rows in uses if isinstance(rows, LinearRows)]
    expected = min(float(truncate(rows, 1, 1)[1].min()) for rows in linear)
    assert expected < 0.9
    assert kept.lowest_share == pytest.approx(expected)
    kept.scores(targets)
    assert kept.lowest_share == pytest.approx(expected)


def test_shares_lost_before_and_after_are_multiplied() -> None:
    targets = Gradients(4, {LINEAR: (linear_rows(4, 5),)})
    units = Units.alike(np.zeros(4, dtype=np.int64))
    kept = Targets(make_plan(targets, targets, Work(10, 4, 1), Options(way="low_rank", rank=1)), units)
    firsts = []
    for part, texts in one_by_one(targets):
        kept.add(part, texts)
        (rows,) = part.merged(torch.zeros(1, dtype=torch.int64), torch.full((1,), 0.25), 1).blocks[LINEAR]
        assert isinstance(rows, LinearRows)
        firsts.append(truncate(rows, 1, 1))
    shares = [share.item() for _, share in firsts]
    owners = torch.zeros(sum(len(rows.owners) for rows, _ in firsts), dtype=torch.int64)
    left, right = (torch.cat([getattr(rows, side) for rows, _ in firsts]) for side in ("left", "right"))
    _, last = truncate(LinearRows(left=left, right=right, owners=owners), 1, 1)
    assert kept.lowest_share == pytest.approx(min(shares) * last.item())
    assert min(shares) < 0.99 > last.item()
