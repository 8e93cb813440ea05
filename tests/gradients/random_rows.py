"""Gradients as random rows, and as the matrices that they represent."""

from __future__ import annotations

import torch
from torch import Tensor

from endtask.gradients.rows import Block, Gradients, LinearRows, LookupRows, Uses

LINEAR, WORDS = Block("linear", 4, 3), Block("words", 6, 3)


def random_gradients(count: int, random: torch.Generator, *, most_rows: int = 4) -> Gradients:
    """Some rows for every owner, or none: a matrix, and word vectors that are both looked up and multiplied."""

    def owners() -> Tensor:
        each = torch.randint(0, most_rows + 1, (count,), generator=random)
        return torch.arange(count).repeat_interleave(each)

    def linear(block: Block) -> LinearRows:
        own = owners()
        return LinearRows(left=normal(len(own), block.height), right=normal(len(own), block.width), owners=own)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    own = owners()
    tokens = torch.randint(0, WORDS.height, (len(own),), generator=random)
    lookups = LookupRows(tokens=tokens, right=normal(len(own), WORDS.width), owners=own)
    return Gradients(count, {LINEAR: (linear(LINEAR),), WORDS: (lookups, linear(WORDS))})


def as_flat(gradients: Gradients) -> Tensor:
    """Every owner's whole gradient, row by row: (count, weights)."""
    return torch.cat([_flat(uses, gradients.count, block) for block, uses in gradients.blocks.items()], dim=1)


def _flat(uses: Uses, count: int, block: Block) -> Tensor:
    total = torch.zeros(count, block.height, block.width, dtype=torch.float64)
    for rows in uses:
        for place, owner in enumerate(rows.owners.tolist()):
            if isinstance(rows, LinearRows):
                total[owner] += torch.outer(rows.left[place], rows.right[place])
            else:
                assert isinstance(rows, LookupRows)
                total[owner, rows.tokens[place]] += rows.right[place]
    return total.flatten(1)
