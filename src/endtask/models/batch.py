"""The tensors of one batch of texts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.text.packed import PackedTexts


@dataclass(frozen=True)
class TextBatch:
    """Padded texts, and the answers for whichever objectives use them.

    B texts padded to T tokens; M of the B x T positions are masked.
    """

    input_ids: Tensor  # (B, T) int64
    attention_mask: Tensor  # (B, T) int64, 0 at padding
    token_type_ids: Tensor  # (B, T) int64, 1 in the second text of a pair
    masked_positions: Tensor | None = None  # (M,) int64, indices into the flattened B x T
    masked_targets: Tensor | None = None  # (M,) int64, the tokens that stood there
    labels: Tensor | None = None  # (B,) int64

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.attention_mask.sum())

    def to(self, device: torch.device) -> TextBatch:
        """The same batch on another device."""
        moved = {
            field.name: value.to(device, non_blocking=True)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return replace(self, **moved)


def gather_texts(texts: PackedTexts, positions: NDArray[np.int64], pad_id: int) -> TextBatch:
    """Pad the texts at `positions` to the longest of them."""
    rows = [texts[int(position)] for position in positions]
    width = max(len(row) for row in rows)
    input_ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    attention = np.zeros((len(rows), width), dtype=np.int64)
    types = np.zeros((len(rows), width), dtype=np.int64)
    for index, (row, position) in enumerate(zip(rows, positions, strict=True)):
        input_ids[index, : len(row)] = row
        attention[index, : len(row)] = 1
        types[index, texts.second[position] : len(row)] = 1
    return TextBatch(torch.from_numpy(input_ids), torch.from_numpy(attention), torch.from_numpy(types))
