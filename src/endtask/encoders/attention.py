"""Attention within each text of a packed batch: three backends with the same results.

`varlen` and `flex` are torch's GPU kernels for texts laid end to end; `padded` pads queries, keys and values and works
on every device. The backend is probed once, before training.
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
DEFAULT_HEAD_SIZE = 64


class AttentionMetadata(NamedTuple):
    """The layout of a batch for an attention backend."""

    offsets: Tensor | None = None  # (S + 1,) int32: varlen
    longest: int = 0
    block_mask: Any = None  # flex
    grid: Tensor | None = None  # (S, T) int64: padded, unless all texts have the same length
    cells: Tensor | None = None  # (N,) int64, the cell of the grid for each token
    mask: Tensor | None = None  # (S, 1, 1, T) bool


def choose_backend(
    requested: str,
    device: torch.device,
    dtype: torch.dtype,
    *,
    fixed_shapes: bool,
    among: tuple[Backend, ...] = FASTEST_FIRST,
    head_size: int = DEFAULT_HEAD_SIZE,
) -> Backend:
    """Return the requested backend, or for `auto` the fastest of `among` that works on this device and precision."""
    for backend in among:
        if requested in ("auto", backend) and _works(backend, device, dtype, fixed_shapes, head_size):
            return backend
    raise InputError(
        f"{requested} does not work here ({device}, {dtype}, torch {torch.__version__})",
        key="model.attention",
        hint="varlen needs a GPU and bfloat16, flex a GPU and compile: true; auto takes what works",
    )


def _works(backend: str, device: torch.device, dtype: torch.dtype, fixed_shapes: bool, head_size: int) -> bool:
    if backend == "varlen":
        return dtype != torch.float32 and _varlen_works(device, head_size)
    return backend == "padded" or (fixed_shapes and _flex_works(device))


def attention_metadata(backend: Backend, batch: TextBatch) -> AttentionMetadata:
    """Return the layout of a batch for a backend; texts of one length need a view only."""
    if batch.even:
        return AttentionMetadata(longest=batch.longest)
    if backend == "varlen":
        return AttentionMetadata(batch.offsets, batch.longest)
    if backend == "flex":
        return AttentionMetadata(block_mask=_block_mask(batch.text_ids))
    assert batch.grid is not None
    longest, tokens = batch.grid.shape[1], len(batch.input_ids)
    cells = batch.text_ids * longest + batch.position_ids
    return AttentionMetadata(
        longest=longest, grid=batch.grid, cells=cells, mask=(batch.grid < tokens)[:, None, None, :]
    )


def attend(query: Tensor, key: Tensor, value: Tensor, metadata: AttentionMetadata) -> Tensor:
    """Attend from every token to the tokens of its text: three times (N, heads, size) -> (N, heads, size)."""
    if metadata.offsets is not None:
        return _varlen(query, key, value, metadata)
    if metadata.block_mask is not None:
        return _flex(query, key, value, metadata)
    return _padded(query, key, value, metadata)


def _varlen(query: Tensor, key: Tensor, value: Tensor, metadata: AttentionMetadata) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert metadata.offsets is not None
    out = varlen_attn(query, key, value, metadata.offsets, metadata.offsets, metadata.longest, metadata.longest)
    assert isinstance(out, Tensor)
    return out


def _flex(query: Tensor, key: Tensor, value: Tensor, metadata: AttentionMetadata) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    # (N, heads, size) -> (1, heads, N, size)
    query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (query, key, value))
    out = flex_attention(query, key, value, block_mask=metadata.block_mask)
    return out.squeeze(0).transpose(0, 1)


def _padded(query: Tensor, key: Tensor, value: Tensor, metadata: AttentionMetadata) -> Tensor:
    def table(part: Tensor) -> Tensor:  # (N, heads, size) -> (S, heads, T, size)
        if metadata.grid is None or metadata.cells is None:
            return part.view(-1, metadata.longest, *part.shape[1:]).transpose(1, 2)
        return _to_table(part, metadata.grid, metadata.cells).transpose(1, 2)

    out = _attention_of_table(table(query), table(key), table(value), metadata.mask).transpose(1, 2)
    if metadata.grid is None or metadata.cells is None:
        return out.flatten(0, 1)
    return _from_table(out, metadata.grid, metadata.cells)


def _attention_of_table(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attend within the rows of a table: three times (S, heads, T, size) -> (S, heads, T, size).

    On a CPU bfloat16 becomes float32, in which the backward pass takes a fifth of the time.
    """
    if query.device.type != "cpu" or query.dtype != torch.bfloat16:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    with torch.autocast("cpu", enabled=False):
        wide = functional.scaled_dot_product_attention(query.float(), key.float(), value.float(), attn_mask=mask)
    return wide.to(query.dtype)


class _ToTable(torch.autograd.Function):
    """Texts laid end to end to a padded table: (N, ...) -> (S, T, ...).

    Cells without a token repeat the last one. The mask hides them, so their gradient is 0 and the backward pass reads
    the other cells only; autograd's own adds up all of them, which takes a tenth of a training step on a CPU.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(flat: Tensor, grid: Tensor, cells: Tensor) -> Tensor:
        return flat[grid.clamp(max=len(flat) - 1)]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _from_table(gradient, *ctx.saved_tensors), None, None


class _FromTable(torch.autograd.Function):
    """The inverse: (S, T, ...) -> (N, ...). The gradient of cells without a token is 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, grid: Tensor, cells: Tensor) -> Tensor:
        return table.flatten(0, 1)[cells]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        grid, cells = ctx.saved_tensors
        present = (grid < len(gradient)).view(*grid.shape, *(1 for _ in gradient.shape[1:]))
        return _to_table(gradient, grid, cells) * present, None, None


def _to_table(flat: Tensor, grid: Tensor, cells: Tensor) -> Tensor:
    table: Tensor = _ToTable.apply(flat, grid, cells)  # type: ignore[no-untyped-call]
    return table


def _from_table(table: Tensor, grid: Tensor, cells: Tensor) -> Tensor:
    flat: Tensor = _FromTable.apply(table, grid, cells)  # type: ignore[no-untyped-call]
    return flat


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
    """Try both passes: releases, builds and GPUs differ in the kernels and head sizes that they have."""
    if device.type != "cuda":
        return False
    try:
        metadata = AttentionMetadata(torch.tensor([0, 5, 16], dtype=torch.int32, device=device), 16)
        return _finite_after_backward(device, metadata, 16, head_size)
    except (ImportError, RuntimeError, TypeError):
        return False


@cache
def _flex_works(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:
        text_ids = torch.arange(_BLOCK, device=device) // 32
        return _finite_after_backward(
            device, AttentionMetadata(block_mask=_block_mask(text_ids)), _BLOCK, DEFAULT_HEAD_SIZE
        )
    except Exception:  # the compiler's errors have no common class
        return False


def _finite_after_backward(device: torch.device, metadata: AttentionMetadata, tokens: int, head_size: int) -> bool:
    part = torch.randn(tokens, 2, head_size, device=device, dtype=torch.bfloat16, requires_grad=True)
    function = attend if metadata.block_mask is None else torch.compile(attend)
    function(part, part, part, metadata).float().square().sum().backward()  # type: ignore[no-untyped-call]
    return part.grad is not None and bool(part.grad.isfinite().all())


ATTENTION = "endtask_packed"
"""The name of packed attention in Hugging Face's registry: `attn_implementation`."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    metadata: AttentionMetadata | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend within texts: (1, heads, N, size) -> (1, N, heads, size); without metadata use the library's attention.

    The kernels have no dropout of attention weights; all other dropouts apply.
    """
    if metadata is None:
        padded: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return padded
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))  # each (N, heads, size)
    return attend(query, key, value, metadata)[None], None


def table_mask(*options: Any, attention_mask: Tensor | None = None, **named: Any) -> Tensor | None:
    """Return the mask of a padded batch, None without padding, for which the library makes one when traced."""
    if attention_mask is None:
        return None
    mask: Tensor | None = sdpa_mask(*options, attention_mask=attention_mask, **named)
    return mask


AttentionInterface.register(ATTENTION, packed_attention)
AttentionMaskInterface.register(ATTENTION, table_mask)
