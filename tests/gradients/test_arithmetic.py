"""Products computed in parts equal products computed at once."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from endtask.gradients import arithmetic
from endtask.gradients import targets as targets_module
from endtask.gradients.arithmetic import matrices, squared_norms, sums_by_owner
from endtask.gradients.capture import Capture
from endtask.gradients.rows import Block, LinearRows, LookupRows
from endtask.gradients.targets import STRATEGIES, Options, Strategy, products
from tests.gradients.random_rows import LINEAR, WORDS, as_flat, random_gradients


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_small_pieces_change_nothing(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(5)
    candidates, targets, options = random_gradients(7, random), random_gradients(5, random), Options(strategy=strategy)
    whole = products(candidates, targets, "cosine", options)
    monkeypatch.setattr(arithmetic, "_MOST_NUMBERS", 1)
    monkeypatch.setattr(targets_module, "_MOST_PAIRS", 1)
    assert torch.allclose(products(candidates, targets, "cosine", options), whole, atol=1e-12)


@pytest.mark.parametrize("most_rows", [0, 1, 3, 9])
def test_norms_by_pairs_and_by_matrix_agree(most_rows: int) -> None:
    gradients = random_gradients(6, torch.Generator().manual_seed(0), most_rows=most_rows)
    for block in (LINEAR, WORDS):
        uses = gradients.blocks[block]
        expected = matrices(uses, 6, block).square().sum((1, 2))
        assert torch.allclose(squared_norms(uses, 6, block), expected, atol=1e-12)
    assert torch.allclose(
        sum(squared_norms(uses, 6, block) for block, uses in gradients.blocks.items()),
        as_flat(gradients).square().sum(1),
    )


@pytest.mark.parametrize(("height", "width"), [(4, 3), (40, 30)], ids=["by matrix", "by pairs"])
def test_where_the_most_rows_are_known_norms_ask_the_device_nothing(height: int, width: int) -> None:
    block, owners = Block("W", height, width), torch.tensor([0, 0, 0, 0, 0, 1, 2, 2])
    random = torch.Generator().manual_seed(0)
    left, right = (torch.randn((len(owners), size), generator=random) for size in (height, width))
    rows = LinearRows(left=left, right=right, owners=owners)
    assert torch.equal(squared_norms((rows,), 3, block, most=5), squared_norms((rows,), 3, block))
    with FakeTensorMode() as fake:  # which has no numbers to ask for
        without_numbers = LinearRows(**{name: fake.from_tensor(value) for name, value in vars(rows).items()})
        assert squared_norms((without_numbers,), 3, block, most=5).shape == (3,)
        with pytest.raises(Exception, match="bincount"):
            squared_norms((without_numbers,), 3, block)


def test_sums_of_no_rows_are_zeros() -> None:
    assert sums_by_owner(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 3).tolist() == [[0, 0]] * 3


def test_a_weight_used_otherwise_is_refused() -> None:
    layer = torch.nn.Linear(4, 4)
    with Capture({"layer": layer.weight}), pytest.raises(ValueError, match="layer is used in a way"):
        torch.nn.functional.linear(torch.ones(1, 4), layer.weight.T)


def test_looked_up_rows_are_added_in_a_fixed_order() -> None:
    random = torch.Generator().manual_seed(0)
    count, block = 100_000, Block("words", 3, 4)
    rows = LookupRows(
        tokens=torch.randint(0, 3, (count,), generator=random),
        right=torch.randn((count, 4), generator=random),
        owners=torch.zeros(count, dtype=torch.int64),
    )
    by_token = [
        sums_by_owner(rows.right[rows.tokens == token], torch.zeros(count)[rows.tokens == token].long(), 1)
        for token in range(3)
    ]
    for _ in range(5):
        assert torch.equal(matrices((rows,), 1, block)[0], torch.cat(by_token))
