"""Dropout as a function of seed and step alone, whatever is trained beside a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from endtask.seeds import generator


def dropout_factors(seed: int, step: int, name: str, rows: int, width: int, probability: float) -> Tensor:
    """What the vectors of a step are multiplied by: 0, or 1 / (1 - probability); (rows, width).

    The first rows are the same however many are asked for, so that padding changes nothing.

    >>> few, many = (dropout_factors(0, 3, "dropout", rows, 4, 0.5) for rows in (2, 5))
    >>> torch.equal(few, many[:2])
    True
    """
    drawn = generator(seed, "few-examples", "dropout", name, step).random((rows, width), dtype=np.float32)
    return torch.from_numpy((drawn >= probability).astype(np.float32) / np.float32(1 - probability))


def stacked_factors(
    seeds: Sequence[int], step: int, names: Sequence[str], rows: int, width: int, probability: float
) -> dict[str, Tensor]:
    """The same for several runs, by the name of the dropout: (runs, rows, width); runs of one seed share theirs."""
    if probability == 0:
        return {}
    found = {}
    for name in names:
        of_seed = {seed: dropout_factors(seed, step, name, rows, width, probability) for seed in dict.fromkeys(seeds)}
        found[name] = torch.stack([of_seed[seed] for seed in seeds])
    return found
