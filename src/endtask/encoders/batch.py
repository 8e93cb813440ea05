"""The tensors of a batch of texts, which are laid end to end without padding between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from endtask.tokenization.packed_texts import PackedTexts

_ROUND = 64
IGNORED = -100
"""The target that cross-entropy ignores."""


@dataclass(frozen=True)
class BatchShape:
    """The size to which every batch of a stream is padded, so that a step is compiled once."""

    tokens: int
    texts: int
    masked: int = 0


@dataclass(frozen=True)
class Layout:
    """The batch layout that an encoder needs.

    `grid`: the batch has the indices of a padded table, for attention without a variable-length kernel.
    `padded`: the whole encoder runs over that table, as Hugging Face's classes do without such a kernel.
    `longest` is the maximum length of a text; without a `fixed_shape` a batch has its own.
    """

    pad_id: int
    longest: int
    grid: bool = True
    padded: bool = False
    fixed_shape: BatchShape | None = None


@dataclass(frozen=True)
class TextBatch:
    """N tokens of S texts, M masked positions, and the labels that some objectives use.

    In a batch padded to a `BatchShape`, padding texts follow the real ones; their labels and targets are `IGNORED`.
    """

    input_ids: Tensor  # (N,) int64
    position_ids: Tensor  # (N,) int64, from 0 in each text
    token_type_ids: Tensor  # (N,) int64, 1 in the second text of a pair
    text_ids: Tensor  # (N,) int64, the text of each token
    offsets: Tensor  # (S + 1,) int32, the start of each text; the last is N
    longest: int  # maximum length of a text
    grid: Tensor | None  # (S, longest) int64, the indices of each text's tokens; N where it has none
    texts: int  # without padding
    real_tokens: int
    padded_tokens: int  # tokens that the encoder computes
    squared_lengths: int  # sum over the texts, for the cost of attention
    even: bool  # every text has the same length, without padding
    masked: int = 0
    masked_positions: Tensor | None = None  # (M,) int64, indices into the N tokens
    masked_targets: Tensor | None = None  # (M,) int64, the tokens before masking
    labels: Tensor | None = None  # (S,) int64; scores (S,) float32; labels (S, classes) float32; tags (N,) int64
    token_labels: Tensor | None = None  # (N,) int64, for objectives with labels of both texts and tokens
    weights: Tensor | None = None  # (S,) float32, the share of each text in the loss; (N,), of each token, with tags
    # Texts and tokens in relation to a mean batch, if batches differ in them by design: a batch's mean loss is
    # multiplied by a share, so that all texts or tokens count alike.
    text_share: float = 1.0
    token_share: float = 1.0
    # In a part of a batch (encoders/batch_parts.py), (): its masked, its real and its labelled tokens as a share of
    # those of the batch.
    masked_share: Tensor | None = None
    real_share: Tensor | None = None
    labelled_share: Tensor | None = None

    def of_masked(self, mean: Tensor) -> Tensor:
        """Return what a mean over the masked tokens contributes to the mean over those of the whole batch."""
        return mean if self.masked_share is None else self.masked_share * mean

    def of_real(self, mean: Tensor) -> Tensor:
        """Return what a mean over the tokens contributes to the mean over those of the whole batch."""
        return mean if self.real_share is None else self.real_share * mean

    def of_labelled(self, mean: Tensor) -> Tensor:
        """Return what a mean over `token_labels` contributes to the mean over those of the whole batch."""
        return mean if self.labelled_share is None else self.labelled_share * mean

    def to(self, device: torch.device) -> TextBatch:
        """Return the batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> TextBatch:
        """Return the batch in pinned memory, from which a GPU copies asynchronously."""
        return self._map(lambda tensor: tensor.pin_memory())

    @property
    def form(self) -> Hashable:
        """Everything that the kernels of a step depend on; batches of one fixed shape have the same form."""
        tensors = self._tensors().items()
        return self.longest, self.even, tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)

    def copy_into(self, other: TextBatch) -> None:
        """Copy this batch into the tensors of another batch of the same form."""
        target = other._tensors()
        for name, tensor in self._tensors().items():
            target[name].copy_(tensor, non_blocking=True)

    def twice(self) -> TextBatch:
        """Return the batch repeated, for two forward passes in one call: (2N,) tokens of 2S texts."""
        tokens, texts = len(self.input_ids), len(self.offsets) - 1
        shifts = {"text_ids": texts, "masked_positions": tokens}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        doubled: dict[str, Any] = {
            name: torch.cat([value, value + shifts[name] if name in shifts else value])
            for name, value in values.items()
            if isinstance(value, Tensor) and value.ndim and name not in ("offsets", "grid")
        }
        doubled["offsets"] = torch.cat([self.offsets, self.offsets[1:] + tokens])
        if self.grid is not None:  # a cell without a token has the index N, which must stay beyond the last token
            doubled["grid"] = torch.cat([self.grid.where(self.grid < tokens, 2 * tokens), self.grid + tokens])
        counts = ("texts", "real_tokens", "padded_tokens", "squared_lengths", "masked")
        return replace(self, **doubled, **{name: 2 * values[name] for name in counts})

    def _map(self, change: Callable[[Tensor], Tensor]) -> TextBatch:
        changed: dict[str, Any] = {name: change(value) for name, value in self._tensors().items()}
        return replace(self, **changed)

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def lay_out(texts: PackedTexts, positions: NDArray[np.int64], layout: Layout) -> TextBatch:
    """Return a batch of the texts at `positions`."""
    tokens, lengths = texts.gather(positions)
    return lay_out_tokens(tokens, lengths, texts.second[positions].astype(np.int64), layout)


def lay_out_tokens(
    tokens: NDArray[np.int64], lengths: NDArray[np.int64], second: NDArray[np.int64], layout: Layout
) -> TextBatch:
    """Return a batch of tokens end to end; `second` has the position in each text where its second part starts."""
    real, count = len(tokens), len(lengths)
    seconds = np.repeat(second, lengths)
    sizes = lengths if layout.fixed_shape is None else _with_padding(lengths, layout)
    offsets = np.concatenate([[0], np.cumsum(sizes)])  # (S + 1,)
    total = int(offsets[-1])
    text_ids = np.repeat(np.arange(len(sizes)), sizes)  # (N,)
    position_ids = (np.arange(total) - offsets[text_ids]) % layout.longest  # the padding text may be longer
    longest = int(lengths.max()) if layout.fixed_shape is None else layout.longest
    padding = np.full(total - real, layout.pad_id)
    types = np.concatenate([position_ids[:real] >= seconds, np.zeros(total - real, dtype=bool)])
    return TextBatch(
        input_ids=torch.from_numpy(np.concatenate([tokens, padding])),
        position_ids=torch.from_numpy(position_ids),
        token_type_ids=torch.from_numpy(types.astype(np.int64)),
        text_ids=torch.from_numpy(text_ids),
        offsets=torch.from_numpy(offsets.astype(np.int32)),
        longest=longest,
        grid=_grid(offsets, longest) if layout.grid else None,
        texts=count,
        real_tokens=real,
        padded_tokens=len(sizes) * longest if layout.padded else total,
        squared_lengths=int((lengths * lengths).sum()),
        even=total == real == count * longest,
    )


def batch_shape_for(tokens: int, texts: int, mask_probability: float, layout: Layout) -> BatchShape:
    """Return the shape for batches of at most `tokens` tokens and `texts` texts, with rows for padding texts."""
    rows = 1 if layout.grid else tokens // layout.longest + 1
    masked = -(-int(tokens * mask_probability + 1) // _ROUND) * _ROUND
    return BatchShape(tokens, texts + rows, masked)


def _with_padding(lengths: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
    """Return the sizes of all texts of a padded batch: the real ones, the padding, and empty ones.

    Variable-length kernels need texts up to `longest`, so padding is split; a padded table needs one row of padding,
    whose vectors nothing reads.
    """
    assert layout.fixed_shape is not None
    missing = layout.fixed_shape.tokens - int(lengths.sum())
    chunk = max(missing, 1) if layout.grid else layout.longest
    padding = [min(chunk, missing - start) for start in range(0, missing, chunk)]
    sizes = np.zeros(layout.fixed_shape.texts, dtype=np.int64)
    if missing < 0 or len(lengths) + len(padding) > len(sizes):
        raise ValueError(f"{len(lengths)} texts of {lengths.sum()} tokens do not fit into {layout.fixed_shape}")
    sizes[: len(lengths) + len(padding)] = [*lengths, *padding]
    return sizes


def _grid(offsets: NDArray[np.int64], longest: int) -> Tensor:
    columns = np.arange(longest)
    lengths = np.diff(offsets)
    table = np.where(columns < lengths[:, None], offsets[:-1, None] + columns, offsets[-1])  # (S, longest)
    return torch.from_numpy(table)


def as_table(batch: TextBatch, pad_id: int) -> dict[str, Tensor]:
    """Return a batch as padded tables for encoders that read them: (S, T) each."""
    assert batch.grid is not None
    tokens = len(batch.input_ids)
    present = batch.grid < tokens
    indices = batch.grid.clamp(max=tokens - 1)
    input_ids = torch.where(present, batch.input_ids[indices], pad_id)
    types = torch.where(present, batch.token_type_ids[indices], 0)
    return {"input_ids": input_ids, "attention_mask": present.long(), "token_type_ids": types}


def through_table(encoder: nn.Module, batch: TextBatch, *, names: tuple[str, ...], pad_id: int) -> Tensor:
    """Return one vector per token from an encoder that reads the inputs `names` as padded tables: (N, hidden)."""
    table = as_table(batch, pad_id)
    hidden: Tensor = encoder(**{name: table[name] for name in names}).last_hidden_state
    return from_table(hidden, batch)


def from_table(hidden: Tensor, batch: TextBatch) -> Tensor:
    """Return the vectors of a padded table end to end: (S, T, hidden) -> (N, hidden); without a grid (1, N, hidden)."""
    if batch.grid is None:
        return hidden[0]
    cells = batch.text_ids * hidden.shape[1] + batch.position_ids
    return hidden.flatten(0, 1)[cells]
