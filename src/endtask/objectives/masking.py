"""BERT's masking with any rate, optionally with rare tokens masked more often."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import IGNORED, BatchShape, TextBatch
from endtask.seeds import derive, spread, uniform

MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
"""BERT's shares of the chosen tokens that become [MASK] or a random token; the others stay as they are."""


@dataclass(frozen=True)
class Masking:
    """Masks tokens for masked language modelling, but never `special_ids`.

    Exactly the share `probability` of a batch's maskable tokens is drawn without replacement, in proportion to
    `weights` (one per token of the vocabulary) if they are set. BERT draws each token independently, so that the number
    of masked tokens varies; here it is the same in every batch, as fixed shapes require.
    """

    probability: float
    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]
    weights: NDArray[np.float64] | None = None

    def apply(self, batch: TextBatch, random: np.random.Generator, fixed_shape: BatchShape | None = None) -> TextBatch:
        """Return the batch with masked tokens; at least one, so that the loss is always defined."""
        ids = batch.input_ids.numpy().copy()  # (N,)
        chosen = self._choose(ids[: batch.real_tokens], random)
        targets = ids[chosen].copy()
        draw = random.random(len(chosen))
        ids[chosen[draw < MASKED_SHARE]] = self.mask_id
        replaced = chosen[(draw >= MASKED_SHARE) & (draw < MASKED_SHARE + RANDOM_SHARE)]
        ids[replaced] = random.integers(self.vocabulary, size=len(replaced))
        size = len(chosen) if fixed_shape is None else fixed_shape.masked
        return replace(
            batch,
            input_ids=torch.from_numpy(ids),
            masked=len(chosen),
            masked_positions=torch.from_numpy(_padded(chosen, size, 0)),
            masked_targets=torch.from_numpy(_padded(targets, size, IGNORED)),
        )

    def _choose(self, ids: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        maskable = np.flatnonzero(~np.isin(ids, self.special_ids))
        # The smallest of exponential times over weights are a draw without replacement (Efraimidis and Spirakis, 2006).
        times = random.standard_exponential(len(maskable))
        if self.weights is not None:
            weights = self.weights[ids[maskable]]
            maskable, times = maskable[weights > 0], times[weights > 0] / weights[weights > 0]
        count = min(len(maskable), max(1, round(self.probability * len(maskable))))
        if count == len(maskable):
            return maskable
        return np.sort(maskable[np.argpartition(times, count)[:count]])


def rare_token_weights(counts: NDArray[np.int64], exponent: float) -> NDArray[np.float64]:
    """Return count^-exponent, and 0 for tokens that never occur (XLM; objective alignment, section 3).

    >>> rare_token_weights(np.array([4, 1, 0]), 0.5).tolist()
    [0.5, 1.0, 0.0]
    """
    weights = np.zeros(len(counts))
    weights[counts > 0] = counts[counts > 0].astype(np.float64) ** -exponent
    return weights


def _padded(values: NDArray[np.int64], size: int, value: int) -> NDArray[np.int64]:
    return np.concatenate([values, np.full(size - len(values), value, dtype=np.int64)])


_STEP = np.uint64(0x9E3779B97F4A7C15)


def mask_texts(
    batch: TextBatch, keys: NDArray[np.int64], masking: Masking, seed: int, mask_index: int = 0
) -> TextBatch:
    """Return the batch with the share `masking.probability` of each text's tokens masked, at least one per text.

    `keys` are the texts' numbers, which seed their masks. Other than in training, the share holds for each text, so
    that its gradient does not depend on the other texts of the batch. The masks of increasing `mask_index` go through
    the tokens of a text in order: no token is masked twice before all of them were masked once.
    """
    ids, owners = batch.input_ids.numpy().copy(), batch.text_ids.numpy()
    mask_seed = derive(seed, "turn", mask_index) if mask_index else seed
    positions = batch.position_ids.numpy()
    is_maskable = ~np.isin(ids, masking.special_ids)
    chosen = _rotating_choice(
        is_maskable, owners, _numbers(keys[owners], positions, seed, "order"), masking.probability, mask_index
    )
    targets = ids[chosen].copy()
    draw = uniform(_numbers(keys[owners[chosen]], positions[chosen], mask_seed, "lot"))
    ids[chosen[draw < MASKED_SHARE]] = masking.mask_id
    replaced = chosen[(draw >= MASKED_SHARE) & (draw < MASKED_SHARE + RANDOM_SHARE)]
    tokens = _numbers(keys[owners[replaced]], positions[replaced], mask_seed, "token")
    ids[replaced] = (tokens % np.uint64(masking.vocabulary)).astype(np.int64)
    return replace(
        batch,
        input_ids=torch.from_numpy(ids),
        masked=len(chosen),
        masked_positions=torch.from_numpy(chosen),
        masked_targets=torch.from_numpy(targets),
    )


def _numbers(keys: NDArray[np.int64], positions: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return a random number for each token of each text."""
    start = np.uint64(derive(seed, "influence mask", purpose))
    return spread(spread(keys.astype(np.uint64) * _STEP ^ start) + positions.astype(np.uint64) * _STEP)


def _rotating_choice(
    is_maskable: NDArray[np.bool_],
    owners: NDArray[np.int64],
    numbers: NDArray[np.uint64],
    share: float,
    mask_index: int,
) -> NDArray[np.int64]:
    """Return the positions that a mask hides, sorted.

    Each mask takes the next tokens of each text in the order of their numbers, and starts again after the last one.
    """
    maskable = np.flatnonzero(is_maskable)
    texts = owners[maskable]
    order = np.lexsort((numbers[maskable], texts))  # by text, then by number
    sizes = np.bincount(texts, minlength=int(owners.max()) + 1)
    masked = np.minimum(sizes, np.maximum(1, np.rint(share * sizes).astype(np.int64)))
    rank = np.arange(len(maskable)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0 in each text
    text_size, per_mask = np.repeat(sizes, sizes), np.repeat(masked, sizes)
    return np.sort(maskable[order[(rank - mask_index * per_mask) % text_size < per_mask]])
