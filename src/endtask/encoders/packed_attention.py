"""Hugging Face's encoders over tokens laid end to end: their own modules, but attention stays inside each text."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from endtask.encoders.attention import Guide, attend

ATTENTION = "endtask_packed"
"""The name of our attention in Hugging Face's registry: `attn_implementation`."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    guide: Guide | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Without a guide the library's own over a padded table; with one, (1, heads, N, size) -> (1, N, heads, size).

    Kernels for texts of any length have no dropout of attention weights; all other dropouts stay as they are.
    """
    if guide is None:
        padded: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return padded
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))  # each (N, heads, size)
    return attend(query, key, value, guide)[None], None


def table_mask(*options: Any, attention_mask: Tensor | None = None, **named: Any) -> Tensor | None:
    """The mask of a padded table, none without padding: while it is traced the library would make one all the same."""
    if attention_mask is None:
        return None
    mask: Tensor | None = sdpa_mask(*options, attention_mask=attention_mask, **named)
    return mask


AttentionInterface.register(ATTENTION, packed_attention)
AttentionMaskInterface.register(ATTENTION, table_mask)
