"""Which texts make up the batch of a step: a pure function of seed and step, every text once per epoch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from endtask.seeds import generator

_MOST_BATCHES_PER_WINDOW = 32
_FEWEST_WINDOWS_PER_EPOCH = 4


class BatchPlan:
    """Positions of the texts in each batch.

    Each epoch is a fresh permutation. Inside windows of at most 32 batches texts are sorted by length, so that a batch
    holds texts of like length and little padding; the batches are then shuffled over the whole epoch. An epoch has at
    least 4 windows: sorted as one, a small set would meet in the same batches again and again. The last batch of an
    epoch may be smaller.

    >>> plan = BatchPlan(np.array([5, 3, 4]), batch_size=2, seed=0, name="demo")
    >>> sorted([*plan.positions(0), *plan.positions(1)])
    [np.int64(0), np.int64(1), np.int64(2)]
    """

    def __init__(self, lengths: NDArray[np.int64], batch_size: int, seed: int, name: str) -> None:
        if len(lengths) == 0:
            raise ValueError(f"{name}: no texts to sample from")
        self._lengths, self._batch_size = lengths, batch_size
        self._seed, self._name = seed, name
        self._epoch = lru_cache(maxsize=2)(self._shuffle_epoch)

    @property
    def batches_per_epoch(self) -> int:
        """Steps that read every text once."""
        return -(-len(self._lengths) // self._batch_size)

    def positions(self, step: int) -> NDArray[np.int64]:
        """The texts of a step's batch."""
        epoch, index = divmod(step, self.batches_per_epoch)
        return self._epoch(epoch)[index]

    def _shuffle_epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        random = generator(self._seed, "batches", self._name, epoch)
        order = random.permutation(len(self._lengths))
        batches_per_window = min(_MOST_BATCHES_PER_WINDOW, self.batches_per_epoch // _FEWEST_WINDOWS_PER_EPOCH)
        window = self._batch_size * max(1, batches_per_window)
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), window):
            bucket = order[start : start + window]
            bucket = bucket[np.argsort(self._lengths[bucket], kind="stable")]
            batches += [bucket[i : i + self._batch_size] for i in range(0, len(bucket), self._batch_size)]
        return [batches[i] for i in random.permutation(len(batches))]
