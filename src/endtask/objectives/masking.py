"""BERT's masking, with any rate, and with rare tokens masked more often if asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import IGNORED, BatchShape, TextBatch
from endtask.seeds import derive, spread, uniform

MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
"""BERT's shares of the hidden tokens that become [MASK] and a random token; the others stay."""


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
    weights: NDArray[np.float64] | None = None

    def apply(self, batch: TextBatch, random: np.random.Generator, fixed_shape: BatchShape | None = None) -> TextBatch:
        """Hide tokens of a batch; at least one, so that the loss is always defined."""
        ids = batch.input_ids.numpy().copy()  # (N,)
        chosen = self._choose(ids[: batch.real_tokens], random)
        targets = ids[chosen].copy()
        draw = random.random(len(chosen))
        ids[chosen[draw < MASKED_SHARE]] = self.mask_id
        swapped = chosen[(draw >= MASKED_SHARE) & (draw < MASKED_SHARE + RANDOM_SHARE)]
        ids[swapped] = random.integers(self.vocabulary, size=len(swapped))
        size = len(chosen) if fixed_shape is None else fixed_shape.masked
        return replace(
            batch,
            input_ids=torch.from_numpy(ids),
            masked=len(chosen),
            masked_positions=torch.from_numpy(_filled(chosen, size, 0)),
            masked_targets=torch.from_numpy(_filled(targets, size, IGNORED)),
        )

    def _choose(self, ids: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        open_positions = np.flatnonzero(~np.isin(ids, self.special_ids))
        open_positions, times = self._times(ids, open_positions, random)
        wanted = self._wanted(len(open_positions))
        if wanted == len(open_positions):
            return open_positions
        return np.sort(open_positions[np.argpartition(times, wanted)[:wanted]])

    def _wanted(self, count: int) -> int:
        return min(count, max(1, round(self.probability * count)))

    def _times(
        self, ids: NDArray[np.int64], positions: NDArray[np.int64], random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The positions that may be drawn, and when each is: (C,) and (C,)."""
        # The smallest of exponential times over weights are a draw without replacement (Efraimidis and Spirakis, 2006).
        times = random.standard_exponential(len(positions))
        if self.weights is None:
            return positions, times
        weights = self.weights[ids[positions]]
        return positions[weights > 0], times[weights > 0] / weights[weights > 0]


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


_STEP = np.uint64(0x9E3779B97F4A7C15)


def mask_texts(
    batch: TextBatch, keys: NDArray[np.int64], masking: Masking, seed: int, mask_index: int = 0
) -> TextBatch:
    """Hide the share `masking.probability` of each text's open tokens, at least one; `keys` are the texts' numbers.

    In training the share holds for a batch. Here each text has its own, so that its gradient never hangs on the
    texts beside it. The masks of several turns hide one token after the other: no token twice before each was once.
    """
    ids, owners = batch.input_ids.numpy().copy(), batch.text_ids.numpy()
    own_seed = derive(seed, "turn", mask_index) if mask_index else seed
    positions = batch.position_ids.numpy()
    is_open = ~np.isin(ids, masking.special_ids)
    chosen = _rotating_choice(
        is_open, owners, _numbers(keys[owners], positions, seed, "order"), masking.probability, mask_index
    )
    targets = ids[chosen].copy()
    draw = uniform(_numbers(keys[owners[chosen]], positions[chosen], own_seed, "lot"))
    ids[chosen[draw < MASKED_SHARE]] = masking.mask_id
    swapped = chosen[(draw >= MASKED_SHARE) & (draw < MASKED_SHARE + RANDOM_SHARE)]
    drawn = _numbers(keys[owners[swapped]], positions[swapped], own_seed, "token")
    ids[swapped] = (drawn % np.uint64(masking.vocabulary)).astype(np.int64)
    return replace(
        batch,
        input_ids=torch.from_numpy(ids),
        masked=len(chosen),
        masked_positions=torch.from_numpy(chosen),
        masked_targets=torch.from_numpy(targets),
    )


def _numbers(keys: NDArray[np.int64], positions: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.uint64]:
    """A random number for each token of each text."""
    start = np.uint64(derive(seed, "influence mask", purpose))
    return spread(spread(keys.astype(np.uint64) * _STEP ^ start) + positions.astype(np.uint64) * _STEP)


def _rotating_choice(
    is_open: NDArray[np.bool_], owners: NDArray[np.int64], numbers: NDArray[np.uint64], share: float, mask_index: int
) -> NDArray[np.int64]:
    """Of each owner's open tokens, from the lowest number up and then again from it, those whose turn it is.

    Places in the order of the tokens.
    """
    maskable = np.flatnonzero(is_open)
    own = owners[maskable]
    order = np.lexsort((numbers[maskable], own))  # by owner, then by number
    sizes = np.bincount(own, minlength=int(owners.max()) + 1)
    wanted = np.minimum(sizes, np.maximum(1, np.rint(share * sizes).astype(np.int64)))
    slot = np.arange(len(maskable)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0 in each owner
    of_token, per_mask = np.repeat(sizes, sizes), np.repeat(wanted, sizes)
    return np.sort(maskable[order[(slot - mask_index * per_mask) % of_token < per_mask]])
