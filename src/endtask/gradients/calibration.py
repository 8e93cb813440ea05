"""Scores of candidates put on one scale for all targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Calibration:
    """Mean and deviation of each column's scores over a draw of the candidates.

    Losses differ in the size of their gradients, and folds in their models; in deviations from what is usual for it,
    every target has the same say.

    >>> scores = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    >>> Calibration.of(scores).apply(scores).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(cls, scores: Tensor) -> Calibration:
        """From the scores of some units: (units, columns)."""
        wide = scores.double()
        deviation = wide.std(dim=0, correction=0)
        return cls(wide.mean(0).float().cpu().numpy(), deviation.float().cpu().numpy())

    def apply(self, scores: Tensor) -> Tensor:
        """Scores in deviations from the mean; 0 in a column where all are alike."""
        mean, deviation = (torch.from_numpy(part).to(scores.device) for part in (self.mean, self.deviation))
        return torch.where(deviation > 0, (scores - mean) / deviation, 0)
