"""Greedy matching: candidates that together, not each alone, come close to the mean gradients of the classes.

GradMatch (Killamsetty et al. 2021) picks by orthogonal matching pursuit: always the candidate that agrees best with
what the ones before leave unexplained. Explained is what a ridge regression on the picked gradients explains, whose
residual has a closed form that each pick updates: (C + aI)^-1 t up to a factor, C the sum of g g^T over the picks.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.gradients.projection import Projection, Sketcher
from endtask.gradients.rows import Block, Gradients

_MOST_ROUNDS = 2000


class Sketches:
    """Gradients as short vectors whose products estimate theirs; each block has the same part of the numbers."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._sketchers: dict[Block, Sketcher] = {}

    def of(self, gradients: Gradients) -> Tensor:
        """One vector for each text or unit: (count, size)."""
        each = max(1, self._size // len(gradients.blocks))
        parts = []
        for block, uses in gradients.blocks.items():
            if block not in self._sketchers:
                self._sketchers[block] = Sketcher(Projection(each, self._seed), block, uses[0].right)
            parts.append(self._sketchers[block].sketches(uses, gradients.count))
        return torch.cat(parts, dim=1)


def unit_length(vectors: Tensor) -> Tensor:
    """Every vector scaled to length 1, but for those of length 0."""
    lengths = vectors.norm(dim=1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)


def match(vectors: Tensor, targets: Tensor, count: int) -> NDArray[np.int64]:
    """Pick `count` rows of (candidates, size) for the rows of (classes, size), class after class; in their order.

    Of very many, several are picked at a time, so that there are at most some thousand rounds.

    >>> vectors = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> match(vectors, torch.tensor([[1.0, 0.8]]), 2).tolist()
    [0, 2]
    """
    count = min(count, len(vectors))
    free = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    inverse = _start(vectors, count)
    wide = targets.double().cpu()
    at_once = -(-count // _MOST_ROUNDS)
    picked: list[int] = []
    while len(picked) < count:
        residual = (inverse @ wide[(len(picked) // at_once) % len(wide)]).to(vectors)
        agreement = torch.where(free, vectors @ residual, -torch.inf)
        best = agreement.topk(min(at_once, count - len(picked))).indices
        free[best] = False
        picked.extend(best.tolist())
        for vector in vectors[best].double().cpu():
            _explain(inverse, vector)
    return np.asarray(picked, dtype=np.int64)


def _start(vectors: Tensor, count: int) -> Tensor:
    """(aI)^-1 before the first pick; a is what all picks together would explain of a random direction."""
    size = vectors.shape[1]
    squares = float(vectors.double().square().sum()) / max(1, len(vectors))
    return torch.eye(size, dtype=torch.float64) * (size / max(squares * count, 1e-30))


def _explain(inverse: Tensor, vector: Tensor) -> None:
    """Add g g^T to the inverted matrix, in place (Sherman and Morrison)."""
    turned = inverse @ vector
    inverse -= torch.outer(turned, turned) / (1 + vector @ turned)
