"""What a task head reads of a text: the first token, the mean over the tokens, or over the entity markers."""

from __future__ import annotations

import torch
from torch import Tensor

from endtask.encoders.batch import TextBatch


def pool(hidden: Tensor, batch: TextBatch, pooling: str, markers: tuple[int, ...] = ()) -> Tensor:
    """Return one vector per text: (N, hidden) -> (S, hidden).

    That of its first token, the mean over its tokens, or the mean over its entity markers. A text without markers
    (masking may hide them) counts with all of its tokens.
    """
    if pooling == "cls":
        # An empty text of a fixed layout starts behind the last token.
        return hidden[batch.offsets[:-1].long().clamp(max=len(hidden) - 1)]
    lengths = batch.offsets.diff()  # (S,)
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pooling == "entity_markers":
        counted = _read_tokens(batch, markers).to(wide.dtype)  # (N,)
        wide = wide * counted[:, None]
        lengths = torch.zeros_like(lengths, dtype=wide.dtype).index_add(0, batch.text_ids, counted)
    total = wide.new_zeros((len(lengths), hidden.shape[1])).index_add(0, batch.text_ids, wide)
    return (total / lengths.clamp(min=1)[:, None]).to(hidden.dtype)


def _read_tokens(batch: TextBatch, markers: tuple[int, ...]) -> Tensor:
    """Return which tokens are entity markers, or all tokens of texts without any: (N,)."""
    # Compared one by one: a tensor of the ids would have to be copied to the device.
    is_marker = torch.stack([batch.input_ids == marker for marker in markers]).any(0)  # (N,)
    texts = len(batch.offsets) - 1
    found = is_marker.new_zeros(texts, dtype=torch.int64).index_add(0, batch.text_ids, is_marker.long())  # (S,)
    return is_marker | (found == 0)[batch.text_ids]
