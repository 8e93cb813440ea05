"""Units of texts that count as one: single texts, mini-batches of neighbours, classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.gradients.rows import Gradients


@dataclass(frozen=True)
class Units:
    """The unit of each text; a unit's gradient is the mean over its texts."""

    numbers: NDArray[np.int64]  # (texts,), the unit of each
    count: int

    @classmethod
    def single(cls, texts: int) -> Units:
        """Every text by itself."""
        return cls(np.arange(texts), texts)

    @classmethod
    def consecutive(cls, texts: int, size: int) -> Units:
        """Mini-batches of `size` neighbours (B_p and B_t of ISS); the last may be smaller.

        >>> Units.consecutive(5, 2).numbers.tolist()
        [0, 0, 1, 1, 2]
        """
        return cls(np.arange(texts) // size, -(-texts // size))

    @classmethod
    def alike(cls, values: NDArray[np.int64]) -> Units:
        """Texts with the same value are one unit, in the order of the values: classes, or windows of one example.

        >>> Units.alike(np.array([7, 3, 7])).numbers.tolist()
        [1, 0, 1]
        """
        distinct, numbers = np.unique(values, return_inverse=True)
        return cls(numbers.astype(np.int64), len(distinct))

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of each text in its unit's mean."""
        return 1.0 / np.bincount(self.numbers, minlength=self.count)[self.numbers]

    def merge(
        self, gradients: Gradients, texts: NDArray[np.int64] | None = None
    ) -> tuple[Gradients, NDArray[np.int64]]:
        """What some texts add to their units, and those units; `texts` are the places of the gradients' texts."""
        texts = np.arange(gradients.count) if texts is None else texts
        if len(texts) != gradients.count:
            raise ValueError(f"{len(texts)} places for the gradients of {gradients.count} texts")
        distinct, local = np.unique(self.numbers[texts], return_inverse=True)
        device = next(iter(gradients.blocks.values()))[0].owners.device
        places, shares = (torch.from_numpy(values).to(device) for values in (local, self.shares[texts]))
        return gradients.merged(places, shares, len(distinct)), distinct
