"""The model's own vectors of texts: what its head reads, the nearest train rows by them, and their plane for a map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.encoders.batch import TextBatch, lay_out
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.heads import pool
from endtask.encoders.network import TASK, Network
from endtask.encoders.unit_vectors import unit_vectors
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts

Vectors = NDArray[np.float32]
Batch = tuple[NDArray[np.int64], TextBatch]

MOST_TRAIN_ROWS = 100_000
"""Train rows that neighbours are sought among; of more, a random sample."""
_MOST_SIMILARITIES = 1 << 24  # entries of a matrix of similarities


def batches_by_length(network: Network, texts: PackedTexts, batch_size: int) -> Iterator[Batch]:
    """Yield the positions of some texts and their batch; a batch has texts of similar length, to save padding."""
    order = np.argsort(texts.lengths, kind="stable")
    layout = network.layout(int(texts.lengths.max()))
    for start in range(0, len(order), batch_size):
        positions = order[start : start + batch_size]
        yield positions, lay_out(texts, positions, layout)


@torch.inference_mode()
def text_vectors(network: Network, texts: PackedTexts, context: DeviceContext, *, batch_size: int = 64) -> Vectors:
    """Return the vector of each example that the task's head reads, of length 1; for taggers the mean over the tokens.

    The vector of an example with several windows is the mean over them.
    """
    network.eval()
    vectors: Vectors = np.zeros((len(texts), 0), dtype=np.float32)
    with context.autocast(), network.uncompiled():
        for positions, batch in batches_by_length(network, texts, batch_size):
            batch = batch.to(context.device)
            hidden = network(batch)
            is_tagger = network.type_of(TASK).per_token
            pooled = (pool(hidden, batch, "mean") if is_tagger else network.pooled(hidden, batch)).float().cpu().numpy()
            if not vectors.shape[1]:
                vectors = np.zeros((len(texts), pooled.shape[1]), dtype=np.float32)
            vectors[positions] = pooled
    windows = texts.windows
    return unit_vectors(np.add.reduceat(vectors, np.cumsum(windows) - windows, axis=0))


@dataclass(frozen=True)
class TrainVectors:
    """Train rows by their vectors: `indices` are their positions in train."""

    vectors: Vectors
    indices: NDArray[np.int64]

    @classmethod
    def of(cls, vectors: Vectors, most: int = MOST_TRAIN_ROWS) -> TrainVectors:
        """Return the vectors of all rows, or of a random sample of `most` rows."""
        indices = np.arange(len(vectors))
        if len(vectors) > most:
            indices = np.sort(generator(0, "neighbors").choice(len(vectors), most, replace=False))
        return cls(vectors[indices], indices)

    def nearest(self, queries: Vectors, most: int) -> Iterator[list[tuple[int, float]]]:
        """Yield for each query the positions of the nearest rows and their cosine similarities, the nearest first.

        >>> train = TrainVectors.of(np.eye(3, dtype=np.float32))
        >>> [[(0, 0.8), (2, 0.6)]] == [
        ...     [(row, round(value, 3)) for row, value in found]
        ...     for found in train.nearest(np.array([[0.8, 0, 0.6]], dtype=np.float32), most=2)
        ... ]
        True
        """
        most = min(most, len(self.indices))
        rows = max(1, _MOST_SIMILARITIES // len(self.indices))
        for start in range(0, len(queries), rows):
            similarities = queries[start : start + rows] @ self.vectors.T
            best = np.argpartition(-similarities, most - 1, axis=1)[:, :most]
            for row, columns in zip(similarities, best, strict=True):
                order = columns[np.lexsort((columns, -row[columns]))]
                yield [(int(self.indices[column]), float(row[column])) for column in order]


def plane(vectors: Vectors) -> tuple[Vectors, float]:
    """Return coordinates (texts, 2) on the two principal components, and the share of the variance that they explain.

    The sign of a component is that of its largest loading, so that equal vectors give equal maps.
    """
    centred = (vectors - vectors.mean(axis=0)).astype(np.float64)
    _, sizes, components = np.linalg.svd(centred, full_matrices=False)
    first = components[:2]
    first = first * np.sign(first[np.arange(len(first)), np.abs(first).argmax(axis=1)])[:, None]
    total = float((sizes**2).sum())
    coordinates = np.zeros((len(vectors), 2), dtype=np.float32)
    coordinates[:, : len(first)] = centred @ first.T
    return coordinates, float((sizes[:2] ** 2).sum()) / total if total else 1.0
