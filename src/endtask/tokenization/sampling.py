"""Batch sampling: the texts of a step are a pure function of seed and step, and an epoch has every text once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from endtask.config import BatchSize
from endtask.seeds import generator

_MOST_BATCHES_PER_WINDOW = 32
_FEWEST_WINDOWS = 4
_SAMPLED_EPOCHS = 4
_SLACK = 1.03
_MOST_SHUFFLES = 100
_ROUND = 128


class BatchPlan:
    """The indices of the texts in each batch.

    Each epoch is a new permutation, divided into batches of a number of texts (the last may be smaller) or into batches
    of nearly equal numbers of tokens, at most the batch size. With `group_by_length`, texts are first sorted by length
    within windows of at most 32 batches, so that a batch has texts of similar length and little padding, and the
    batches are shuffled over the epoch. An epoch has at least 4 windows: sorted as a whole, a small set would have the
    same batches in every epoch.

    >>> plan = BatchPlan(np.array([5, 3, 4]), BatchSize.parse("2"), seed=0, name="demo")
    >>> sorted(int(index) for step in (0, 1) for index in plan.positions(step))
    [0, 1, 2]
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        size: BatchSize,
        seed: int,
        name: str,
        *,
        group_by_length: bool = False,
    ) -> None:
        if len(lengths) == 0:
            raise ValueError(f"{name}: no texts to sample from")
        self._lengths, self._size = lengths, size
        self._seed, self._name = seed, name
        self._group_by_length = group_by_length
        self._longest = int(lengths.max())
        if size.unit == "tokens" and size.amount < 2 * self._longest:
            raise ValueError(f"{name}: a batch of {size} is less than two texts of {self._longest} tokens")
        self._epoch = lru_cache(maxsize=2)(self._shuffle_epoch)

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of steps that read every text once."""
        if self._size.unit == "texts":
            return -(-len(self._lengths) // self._size.amount)
        # A batch exceeds an equal share of all tokens by less than the longest text.
        return -(-int(self._lengths.sum()) // (self._size.amount - self._longest + 1))

    def positions(self, step: int) -> NDArray[np.int64]:
        """Return the indices of the texts of a step's batch."""
        epoch, index = divmod(step, self.batches_per_epoch)
        return self._epoch(epoch)[index]

    def shares(self, step: int) -> tuple[float, float]:
        """Return the texts and the tokens of a step's batch relative to the mean batch; 1 without `group_by_length`.

        With a fixed number of tokens, a batch of short texts has more texts; with a fixed number of texts, it has fewer
        tokens.
        """
        if not self._group_by_length:
            return 1.0, 1.0
        batch, batches = self._lengths[self.positions(step)], self.batches_per_epoch
        return len(batch) * batches / len(self._lengths), float(batch.sum()) * batches / float(self._lengths.sum())

    @cached_property
    def most(self) -> tuple[int, int]:
        """The maximum numbers of tokens and texts in a batch; a rare epoch that would exceed them is shuffled again.

        They do not depend on the seed, so that networks of several seeds share the graphs compiled for these shapes.
        """
        assert not self._group_by_length
        randoms = [generator(0, "room", epoch) for epoch in range(_SAMPLED_EPOCHS)]
        epochs = [self._cut(random.permutation(len(self._lengths))) for random in randoms]
        tokens, texts = self._largest([batch for epoch in epochs for batch in epoch])
        if self._size.unit == "texts":
            return _round_up(min(int(_SLACK * tokens), texts * self._longest)), texts
        share = -(-int(self._lengths.sum()) // self.batches_per_epoch)
        tokens = _round_up(min(share + self._longest, self._size.amount))
        return tokens, min(int(_SLACK * texts) + 1, len(self._lengths))

    def _shuffle_epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        if self._group_by_length:  # shapes are not fixed
            return self._batches(epoch, 0)
        for attempt in count():
            batches = self._batches(epoch, attempt)
            tokens, texts = self._largest(batches)
            if tokens <= self.most[0] and texts <= self.most[1]:
                return batches
            if attempt == _MOST_SHUFFLES:
                raise ValueError(f"{self._name}: texts too uneven for batches of {self._size}")
        raise AssertionError

    def _batches(self, epoch: int, attempt: int) -> list[NDArray[np.int64]]:
        path = ("batches", self._name, epoch, *((attempt,) if attempt else ()))
        random = generator(self._seed, *path)
        order = random.permutation(len(self._lengths))
        if not self._group_by_length:
            return self._cut(order)
        batches = self._cut(self._sort_windows(order))
        return [batches[index] for index in random.permutation(len(batches))]

    def _sort_windows(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        batches = min(_MOST_BATCHES_PER_WINDOW, self.batches_per_epoch // _FEWEST_WINDOWS)
        window = max(1, batches) * -(-len(self._lengths) // self.batches_per_epoch)
        windows = (order[start : start + window] for start in range(0, len(order), window))
        ascending = [part[np.argsort(self._lengths[part], kind="stable")] for part in windows]
        # Every second window is descending, so that a batch across two windows has similar lengths too.
        return np.concatenate([part[:: (-1) ** number] for number, part in enumerate(ascending)])

    def _cut(self, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        if self._size.unit == "texts":
            return [order[start : start + self._size.amount] for start in range(0, len(order), self._size.amount)]
        before = np.cumsum(self._lengths[order]) - self._lengths[order]  # tokens before each text
        numbers = np.arange(1, self.batches_per_epoch)
        starts = np.searchsorted(before, self._lengths.sum() / self.batches_per_epoch * numbers)
        # A text longer than a batch's share could leave the next batch empty, which then gets a text of its neighbour.
        starts = np.maximum.accumulate(starts - numbers) + numbers
        return np.split(order, np.minimum(starts, len(order) - self.batches_per_epoch + numbers))

    def _largest(self, batches: list[NDArray[np.int64]]) -> tuple[int, int]:
        return max(int(self._lengths[batch].sum()) for batch in batches), max(map(len, batches))


def _round_up(tokens: int) -> int:
    """Round up to the block size of GPU kernels."""
    return -(-tokens // _ROUND) * _ROUND
