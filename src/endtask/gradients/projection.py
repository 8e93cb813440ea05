"""Random projection of gradients given as rows: short vectors whose products are unbiased estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from endtask.gradients.arithmetic import sums_by_owner, tokens_of
from endtask.gradients.rows import Block, LinearRows, Uses
from endtask.seeds import derive


@dataclass(frozen=True)
class Projection:
    """How gradients are projected: onto `size` random directions, drawn from the seed.

    The products of two sketches have the mean <G, G'>, and a deviation of |G| |G'| / sqrt(size) where the two are
    unlike, of up to about three times that where they are alike.
    """

    size: int
    seed: int = 0


class Sketcher:
    """Projects the gradients of one block.

    Each direction is the outer product of two vectors of signs, so that no matrix is ever built: for G = sum of l r^T,
    number k of the sketch is the sum of (p_k . l) (q_k . r) / sqrt(size).
    """

    def __init__(self, projection: Projection, block: Block, like: Tensor) -> None:
        self._size = projection.size
        self._left, self._right = (
            _signs(projection, f"{block}/{side}", length).to(like.device, like.dtype)
            for side, length in (("left", block.height), ("right", block.width))
        )

    def sketches(self, uses: Uses, count: int) -> Tensor:
        """Every owner's sketch: rows -> (count, size)."""
        total = self._left.new_zeros((count, self._size))
        for rows in uses:
            left = rows.left @ self._left if isinstance(rows, LinearRows) else self._left[tokens_of(rows)]  # (R, size)
            total += sums_by_owner(left * (rows.right @ self._right), rows.owners, count)
        return total / math.sqrt(self._size)


def _signs(projection: Projection, place: str, length: int) -> Tensor:
    """Random signs (length, size), the same for every device."""
    random = torch.Generator().manual_seed(derive(projection.seed, "projection", place))
    return torch.randint(0, 2, (length, projection.size), generator=random, dtype=torch.int8).mul(2).sub(1)
