"""Masks that belong to a text: a pure function of seed, text and position, whatever batch the text stands in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import TextBatch
from endtask.objectives.masking import MASKED_SHARE, RANDOM_SHARE, Masking
from endtask.seeds import derive, spread, uniform

_STEP = np.uint64(0x9E3779B97F4A7C15)


def mask_texts(batch: TextBatch, keys: NDArray[np.int64], masking: Masking, seed: int, turn: int = 0) -> TextBatch:
    """Hide the share `masking.probability` of each text's open tokens, at least one; `keys` are the texts' numbers.

    In training the share holds for a batch. Here each text has its own, so that its gradient never hangs on the
    texts beside it. The masks of several turns hide one token after the other: no token twice before each was once.
    """
    ids, owners = batch.input_ids.numpy().copy(), batch.text_ids.numpy()
    own_seed = derive(seed, "turn", turn) if turn else seed
    positions = batch.position_ids.numpy()
    is_open = ~np.isin(ids, masking.special_ids)
    chosen = _in_turn(is_open, owners, _numbers(keys[owners], positions, seed, "order"), masking.probability, turn)
    targets = ids[chosen].copy()
    lot = uniform(_numbers(keys[owners[chosen]], positions[chosen], own_seed, "lot"))
    ids[chosen[lot < MASKED_SHARE]] = masking.mask_id
    swapped = chosen[(lot >= MASKED_SHARE) & (lot < MASKED_SHARE + RANDOM_SHARE)]
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


def _in_turn(
    is_open: NDArray[np.bool_], owners: NDArray[np.int64], numbers: NDArray[np.uint64], share: float, turn: int
) -> NDArray[np.int64]:
    """Of each owner's open tokens, from the lowest number up and then again from it, those whose turn it is.

    Places in the order of the tokens.
    """
    places = np.flatnonzero(is_open)
    own = owners[places]
    order = np.lexsort((numbers[places], own))  # by owner, then by number
    sizes = np.bincount(own, minlength=int(owners.max()) + 1)
    wanted = np.minimum(sizes, np.maximum(1, np.rint(share * sizes).astype(np.int64)))
    slot = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # from 0 in each owner
    of_token, of_turn = np.repeat(sizes, sizes), np.repeat(wanted, sizes)
    return np.sort(places[order[(slot - turn * of_turn) % of_token < of_turn]])
