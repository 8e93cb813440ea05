"""Dropout as a function of seed and step alone, whatever is trained beside a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.seeds import generator


def dropout_kept(seed: int, step: int, name: str, rows: int, width: int, probability: float) -> NDArray[np.bool_]:
    """Which numbers of a step's vectors stay: (rows, width).

    The first rows are the same however many are asked for, so that padding changes nothing.

    >>> few, many = (dropout_kept(0, 3, "dropout", rows, 4, 0.5) for rows in (2, 5))
    >>> np.array_equal(few, many[:2])
    True
    """
    drawn = generator(seed, "few-examples", "dropout", name, step).random((rows, width), dtype=np.float32)
    return np.asarray(drawn >= probability)


def dropout_factors(seed: int, step: int, name: str, rows: int, width: int, probability: float) -> Tensor:
    """What the vectors of a step are multiplied by: 0, or 1 / (1 - probability); (rows, width).

    >>> dropout_factors(0, 3, "dropout", 1, 4, 0.5).unique()
    tensor([0., 2.])
    """
    kept = dropout_kept(seed, step, name, rows, width, probability)
    return torch.from_numpy(kept.astype(np.float32) / np.float32(1 - probability))


@dataclass(frozen=True)
class Noise:
    """The dropout of one step of several runs, whose seeds these are; runs of one seed share theirs."""

    seeds: Sequence[int]
    step: int
    probability: float

    def factors(self, names: Sequence[str], rows: int, width: int) -> dict[str, Tensor]:
        """Factors by the name of the dropout: (runs, rows, width)."""
        if self.probability == 0:
            return {}
        found = {}
        for name in names:
            of_seed = {
                seed: dropout_factors(seed, self.step, name, rows, width, self.probability)
                for seed in dict.fromkeys(self.seeds)
            }
            found[name] = torch.stack([of_seed[seed] for seed in self.seeds])
        return found

    def kept(self, name: str, rows: int, width: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Of one dropout, which numbers stay (seeds, rows, width), and which of these tables each run has (runs,)."""
        seeds = list(dict.fromkeys(self.seeds))
        of_run = np.asarray([seeds.index(seed) for seed in self.seeds], dtype=np.int64)
        if self.probability == 0:
            return np.ones((len(seeds), rows, width), dtype=np.uint8), of_run
        tables = [dropout_kept(seed, self.step, name, rows, width, self.probability) for seed in seeds]
        return np.stack(tables).view(np.uint8), of_run
