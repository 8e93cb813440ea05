"""Attention that stays inside each text of a packed batch: three ways to the same numbers.

`varlen` and `flex` are torch's own GPU kernels for texts laid end to end; `padded` puts queries, keys and values into a
padded table and works everywhere. Which one runs is probed once, before training.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from endtask.config.model import Backend
from endtask.encoders.batch import TextBatch
from endtask.errors import InputError

FASTEST_FIRST: tuple[Backend, ...] = ("varlen", "flex", "padded")
_BLOCK = 128  # flex_attention's
USUAL_SIZE = 64
"""Of an attention head."""


class Guide(NamedTuple):
    """What a backend needs to know of a batch's layout."""

    offsets: Tensor | None = None  # (S + 1,) int32: varlen
    longest: int = 0
    block_mask: Any = None  # flex
    grid: Tensor | None = None  # (S, T) int64: padded, unless all texts are equally long
    cells: Tensor | None = None  # (N,) int64, the cell of the grid that holds each token
    mask: Tensor | None = None  # (S, 1, 1, T) bool


def choose_backend(
    requested: str,
    device: torch.device,
    dtype: torch.dtype,
    *,
    fixed_shapes: bool,
    among: tuple[Backend, ...] = FASTEST_FIRST,
    head_size: int = USUAL_SIZE,
) -> Backend:
    """The requested backend, or the fastest of some that works on this device in this precision."""
    wanted = (one for one in among if requested in ("auto", one))  # each attempt takes seconds
    found = next((one for one in wanted if _works(one, device, dtype, fixed_shapes, head_size)), None)
    if found is None:
        raise InputError(
            f"{requested} does not work here ({device}, {dtype}, torch {torch.__version__})",
            key="model.attention",
            hint="varlen needs a GPU and bfloat16, flex a GPU and compile: true; auto takes what works",
        )
    return found


def _works(backend: str, device: torch.device, dtype: torch.dtype, fixed_shapes: bool, head_size: int) -> bool:
    if backend == "varlen":
        return dtype != torch.float32 and _varlen_works(device, head_size)
    return backend == "padded" or (fixed_shapes and _flex_works(device))


def guide_for(backend: Backend, batch: TextBatch) -> Guide:
    """The layout of a batch as a backend wants it; texts of one length need no help, a view makes them a table."""
    if batch.even:
        return Guide(longest=batch.longest)
    if backend == "varlen":
        return Guide(batch.offsets, batch.longest)
    if backend == "flex":
        return Guide(block_mask=_block_mask(batch.text_ids))
    assert batch.grid is not None
    longest, tokens = batch.grid.shape[1], len(batch.input_ids)
    cells = batch.text_ids * longest + batch.position_ids
    return Guide(longest=longest, grid=batch.grid, cells=cells, mask=(batch.grid < tokens)[:, None, None, :])


def attend(query: Tensor, key: Tensor, value: Tensor, guide: Guide) -> Tensor:
    """Attention of every token to its own text: three times (N, heads, size) -> (N, heads, size)."""
    if guide.offsets is not None:
        return _varlen(query, key, value, guide)
    if guide.block_mask is not None:
        return _flex(query, key, value, guide)
    return _padded(query, key, value, guide)


def _varlen(query: Tensor, key: Tensor, value: Tensor, guide: Guide) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert guide.offsets is not None
    out = varlen_attn(query, key, value, guide.offsets, guide.offsets, guide.longest, guide.longest)
    assert isinstance(out, Tensor)
    return out


def _flex(query: Tensor, key: Tensor, value: Tensor, guide: Guide) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    def alone(part: Tensor) -> Tensor:  # (N, heads, size) -> (1, heads, N, size)
        return part.transpose(0, 1).unsqueeze(0)

    out = flex_attention(alone(query), alone(key), alone(value), block_mask=guide.block_mask)
    return out.squeeze(0).transpose(0, 1)


def _padded(query: Tensor, key: Tensor, value: Tensor, guide: Guide) -> Tensor:
    def table(part: Tensor) -> Tensor:  # (N, heads, size) -> (S, heads, T, size)
        if guide.grid is None:
            return part.view(-1, guide.longest, *part.shape[1:]).transpose(1, 2)
        # Cells without a token repeat the last one; the mask hides them.
        return part[guide.grid.clamp(max=len(part) - 1)].transpose(1, 2)

    out = functional.scaled_dot_product_attention(table(query), table(key), table(value), attn_mask=guide.mask)
    flat = out.transpose(1, 2).flatten(0, 1)  # (S, heads, T, size) -> (S * T, heads, size)
    return flat if guide.cells is None else flat[guide.cells]


def _block_mask(text_ids: Tensor) -> Any:
    def same_text(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return text_ids[query] == text_ids[key]

    size = len(text_ids)
    return _compiled_block_mask()(same_text, None, None, size, size, device=text_ids.device)


@cache
def _compiled_block_mask() -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    return torch.compile(create_block_mask)


@cache
def _varlen_works(device: torch.device, head_size: int) -> bool:
    """Try it, forward and backward: releases, builds and chips differ in what they have, also in sizes of heads."""
    if device.type != "cuda":
        return False
    try:
        guide = Guide(torch.tensor([0, 5, 16], dtype=torch.int32, device=device), 16)
        return _finite_after_backward(device, guide, 16, head_size)
    except (ImportError, RuntimeError, TypeError):
        return False


@cache
def _flex_works(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:
        text_ids = torch.arange(_BLOCK, device=device) // 32
        return _finite_after_backward(device, Guide(block_mask=_block_mask(text_ids)), _BLOCK, USUAL_SIZE)
    except Exception:  # the compiler's own errors share no class
        return False


def _finite_after_backward(device: torch.device, guide: Guide, tokens: int, head_size: int) -> bool:
    part = torch.randn(tokens, 2, head_size, device=device, dtype=torch.bfloat16, requires_grad=True)
    function = attend if guide.block_mask is None else torch.compile(attend)
    function(part, part, part, guide).float().square().sum().backward()  # type: ignore[no-untyped-call]
    return part.grad is not None and bool(part.grad.isfinite().all())


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
