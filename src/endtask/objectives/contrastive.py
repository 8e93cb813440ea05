"""Contrastive learning from labels: texts of one class get similar vectors, texts of different classes unlike ones.

SetFit (Tunstall et al., 2022) draws pairs of labelled texts and learns their cosines. A batch of S texts holds all
S (S - 1) / 2 pairs, which are learned from one reading of each text.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from endtask.encoders.batch import IGNORED


def contrastive_loss(vectors: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of all pairs' cosines, which should be 1 in a class, else 0: (S, hidden), (S,) -> ()

    Pairs of equal and of different classes weigh half each, as in SetFit's draws, however many there are of either.
    Texts with the class `IGNORED`, which fill a batch of a fixed shape, have no part.

    >>> vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> [contrastive_loss(vectors, torch.tensor(classes)).item() for classes in ([0, 0, 1, 1], [0, 1, 0, 1])]
    [0.0, 0.75]
    """
    with torch.autocast(vectors.device.type, enabled=False):  # cosines near 1 differ in digits that bfloat16 lacks
        unit = functional.normalize(vectors.float(), dim=-1)
        cosines = unit @ unit.T
    real = labels != IGNORED
    pairs = (real[:, None] & real[None, :]).triu(1)
    equal = labels[:, None] == labels[None, :]
    errors = (cosines - equal.to(cosines.dtype)) ** 2
    return 0.5 * (_mean(errors, pairs & equal) + _mean(errors, pairs & ~equal))


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of some values, 0 without any; nothing is read on the host."""
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)
