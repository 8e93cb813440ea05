"""Random projections: seeded, unbiased, and as close as they promise."""

from __future__ import annotations

import torch

from endtask.gradients.options import Options
from endtask.gradients.projection import Projection, Sketcher
from endtask.gradients.targets import products
from tests.gradients.random_rows import LINEAR, WORDS, as_flat, random_gradients


def test_products_of_sketches_are_right_on_average_and_close_each_time() -> None:
    random = torch.Generator().manual_seed(0)
    candidates, targets = random_gradients(3, random), random_gradients(4, random)
    one, other = as_flat(candidates), as_flat(targets)
    lengths = one.norm(dim=1)[:, None] * other.norm(dim=1)
    size, repeats = 64, 200
    errors = torch.stack(
        [
            products(candidates, targets, options=Options(way="projected", projection=Projection(size, seed)))
            - one @ other.T
            for seed in range(repeats)
        ]
    )
    deviation = (errors / lengths.clamp(min=1e-9)).square().mean(0).sqrt()
    assert 0 < deviation.max() < 3 / size**0.5
    assert (errors.mean(0).abs() <= 4 * errors.std(0) / repeats**0.5 + 1e-9).all()


def test_the_seed_and_the_block_decide_the_directions() -> None:
    gradients = random_gradients(3, torch.Generator().manual_seed(0))
    for block in (LINEAR, WORDS):
        uses = gradients.blocks[block]
        first, again, other = (
            Sketcher(Projection(8, seed), block, uses[0].right).sketches(uses, 3) for seed in (1, 1, 2)
        )
        assert first.shape == (3, 8)
        assert torch.equal(first, again)
        assert not torch.allclose(first, other)


def test_cosines_of_a_gradient_with_itself_are_one() -> None:
    gradients = random_gradients(3, torch.Generator().manual_seed(0))
    options = Options(way="projected", projection=Projection(16))
    assert torch.allclose(products(gradients, gradients, "cosine", options).diagonal(), torch.ones(3).double())
