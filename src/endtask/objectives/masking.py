"""BERT's masking: 80% [MASK], 10% a random token, 10% left as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from endtask.models.batch import TextBatch


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden for masked language modelling; `special_ids` are never hidden."""

    probability: float
    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]

    def apply(self, batch: TextBatch, random: np.random.Generator) -> TextBatch:
        """Hide tokens of a batch; at least one, so that the loss is always defined."""
        ids = batch.input_ids.numpy().copy()  # (B, T)
        open_positions = np.flatnonzero(~np.isin(ids, self.special_ids))
        chosen = open_positions[random.random(len(open_positions)) < self.probability]
        if len(chosen) == 0 and len(open_positions):
            chosen = open_positions[random.integers(len(open_positions), size=1)]
        flat = ids.reshape(-1)  # (B * T,)
        targets = flat[chosen].copy()
        lot = random.random(len(chosen))
        flat[chosen[lot < 0.8]] = self.mask_id
        swapped = chosen[(lot >= 0.8) & (lot < 0.9)]
        flat[swapped] = random.integers(self.vocabulary, size=len(swapped))
        return replace(
            batch,
            input_ids=torch.from_numpy(ids),
            masked_positions=torch.from_numpy(chosen),
            masked_targets=torch.from_numpy(targets),
        )
