"""Packed texts in the layout of a network and, built independently, in that of a stock Hugging Face model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import BatchShape, TextBatch, lay_out
from endtask.encoders.network import Network
from endtask.tokenization.packed_texts import PackedTexts


def batch_of(
    network: Network,
    texts: PackedTexts,
    positions: NDArray[np.int64] | None = None,
    fixed_shape: BatchShape | None = None,
) -> TextBatch:
    """Some or all texts, laid out for the network."""
    chosen = np.arange(len(texts)) if positions is None else positions
    return lay_out(texts, chosen, replace(network.layout(int(texts.lengths.max())), fixed_shape=fixed_shape))


def stock_inputs(network: Network, texts: PackedTexts) -> dict[str, torch.Tensor]:
    """All texts as a padded table, with what the stock model takes: (S, T) each."""
    shape = (len(texts), int(texts.lengths.max()))
    ids = np.full(shape, network.config.pad_token_id, dtype=np.int64)
    present, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, length in enumerate(texts.lengths):
        ids[row, :length], present[row, :length] = texts[row], 1
        types[row, texts.second[row] : length] = 1
    inputs = {"input_ids": ids, "attention_mask": present, "token_type_ids": types}
    return {name: torch.from_numpy(inputs[name]) for name in network.architecture.input_names}


def real_rows(table: torch.Tensor, texts: PackedTexts) -> torch.Tensor:
    """The rows of real tokens of a padded table, end to end: (S, T, ...) -> (N, ...)."""
    return torch.cat([row[:length] for row, length in zip(table, texts.lengths, strict=True)])
