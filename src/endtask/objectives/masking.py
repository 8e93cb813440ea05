"""BERT's masking, with any rate, and with rare tokens masked more often if asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.models.batch import IGNORED, Room, TextBatch


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden for masked language modelling; `special_ids` are never hidden.

    Of a batch's open tokens exactly the share `probability` is drawn, without replacement, in proportion to
    `weights` (one per token of the vocabulary) where given. BERT decides for each token by itself, so its number
    varies; ours is the same in every batch, which fixed shapes want.
    """

    probability: float
    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]
    token_share: float = 0.8
    random_share: float = 0.1
    weights: NDArray[np.float64] | None = None

    def apply(self, batch: TextBatch, random: np.random.Generator, room: Room | None = None) -> TextBatch:
        """Hide tokens of a batch; at least one, so that the loss is always defined."""
        ids = batch.input_ids.numpy().copy()  # (N,)
        chosen = self._choose(ids[: batch.real_tokens], random)
        targets = ids[chosen].copy()
        lot = random.random(len(chosen))
        ids[chosen[lot < self.token_share]] = self.mask_id
        swapped = chosen[(lot >= self.token_share) & (lot < self.token_share + self.random_share)]
        ids[swapped] = random.integers(self.vocabulary, size=len(swapped))
        size = len(chosen) if room is None else room.masked
        return replace(
            batch,
            input_ids=torch.from_numpy(ids),
            masked=len(chosen),
            masked_positions=torch.from_numpy(_filled(chosen, size, 0)),
            masked_targets=torch.from_numpy(_filled(targets, size, IGNORED)),
        )

    def _choose(self, ids: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        open_positions = np.flatnonzero(~np.isin(ids, self.special_ids))
        # The smallest of exponential times over weights are a draw without replacement (Efraimidis and Spirakis, 2006).
        times = random.standard_exponential(len(open_positions))
        if self.weights is not None:
            weights = self.weights[ids[open_positions]]
            open_positions, times = open_positions[weights > 0], times[weights > 0] / weights[weights > 0]
        wanted = min(len(open_positions), max(1, round(self.probability * len(open_positions))))
        if wanted == len(open_positions):
            return open_positions
        return np.sort(open_positions[np.argpartition(times, wanted)[:wanted]])


def rare_token_weights(counts: NDArray[np.int64], exponent: float) -> NDArray[np.float64]:
    """count^-exponent, and 0 for tokens that never occur (XLM; objective alignment, section 3).

    >>> rare_token_weights(np.array([4, 1, 0]), 0.5).tolist()
    [0.5, 1.0, 0.0]
    """
    weights = np.zeros(len(counts))
    weights[counts > 0] = counts[counts > 0].astype(np.float64) ** -exponent
    return weights


def _filled(values: NDArray[np.int64], size: int, filler: int) -> NDArray[np.int64]:
    return np.concatenate([values, np.full(size - len(values), filler, dtype=np.int64)])
