"""The encoder's vectors: one for each prediction unit, which is all that a head reads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from endtask.encoders.batch import TextBatch, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.experiments.few_shot.label_draws import Indices
from endtask.experiments.few_shot.prediction_units import PredictionUnits
from endtask.tokenization.packed_texts import PackedTexts, WordStarts

_TEXTS_AT_ONCE = 64


@torch.no_grad()
def unit_vectors(
    network: Network, texts: PackedTexts, units: PredictionUnits, rows: Indices, context: DeviceContext
) -> Tensor:
    """Return the vectors of the rows' units, row after row, without dropout: (units of the rows, hidden)."""
    network.eval()
    words = WordStarts(texts) if network.task_type.per_token else None
    counts = units.offsets[rows + 1] - units.offsets[rows]
    starts = np.cumsum(counts) - counts
    vectors = torch.zeros(int(counts.sum()), network.config.hidden_size, device=context.device)
    order = np.argsort(texts.lengths[rows], kind="stable")  # texts of like length need less padding
    with context.autocast(), network.uncompiled():
        layout = network.layout(int(texts.lengths.max()))
        for start in range(0, len(order), _TEXTS_AT_ONCE):
            some = order[start : start + _TEXTS_AT_ONCE]
            batch = lay_out(texts, rows[some], layout)
            hidden = network(on_device := batch.to(context.device))
            where = np.concatenate([np.arange(starts[n], starts[n] + counts[n]) for n in some])
            vectors[torch.from_numpy(where).to(context.device)] = _head_inputs(
                network, hidden, on_device, words, rows[some]
            ).float()
    return vectors


def _head_inputs(network: Network, hidden: Tensor, batch: TextBatch, words: WordStarts | None, rows: Indices) -> Tensor:
    """Return what the task head reads: one vector per text, or those of words' first tokens."""
    if words is None:
        return network.pooled(hidden, batch)
    _, tokens = words.gather(rows, batch.offsets[:-1].cpu().numpy().astype(np.int64))
    return hidden[torch.from_numpy(tokens).to(hidden.device)]


class FeatureCache:
    """The encoder's vectors of the units of some rows: (units, hidden), found by the units' numbers."""

    def __init__(self, vectors: Tensor, units: Indices, total: int) -> None:
        self.vectors = vectors
        self._index = np.full(total, -1, dtype=np.int64)
        self._index[units] = np.arange(len(units))

    def __getitem__(self, units: Indices) -> Tensor:
        """Return vectors in the shape of `units`: (..., hidden); for padding (-1) any vector."""
        indices = torch.from_numpy(np.where(units < 0, 0, self._index[units])).to(self.vectors.device)
        return self.vectors.index_select(0, indices.flatten()).view(*units.shape, -1)
