"""Rank by the nearest train row in an embedding: dense retrieval over the passages that BM25 retrieved."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from endtask.config import Settings
from endtask.config.section import Positive
from endtask.io.selection_table import read_batches
from endtask.progress import bar
from endtask.selectors.base import Candidates, Order, PartConfig, Ranking, RunContext, Selector, selectors
from endtask.selectors.embeddings import (
    Vectors,
    check_embedding_exists,
    embedding_fingerprint,
    is_vector_file,
    vectors_for,
)
from endtask.task import Task

_NUMBERS_AT_ONCE = 1 << 24
"""Cosines held at a time: 64 MB."""
_DECIMALS = 6
"""Decimals of a cosine that count; later ones depend on the order of summation."""


@selectors.register("nearest_neighbors")
class NearestNeighbors(Selector):
    """nearest to a train row in an embedding"""

    class Config(PartConfig):
        """Options of `nearest_neighbors`."""

        embedding: str | None = Field(
            None,
            description="an encoder (a folder, `package:NAME` or `hf:NAME`), or a file of vectors of passages and "
            "train rows (.parquet, .npz, .npy, .safetensors)",
        )
        neighbors: Positive = Field(1000, description="how many nearest passages each train row ranks")

    runs_model = True
    config: Config

    def external_path(self) -> str | None:
        """Return the embedding."""
        return self.config.embedding

    def external_digest(self) -> str:
        """Return a hash of the files of vectors, or what identifies the model and its tokenizer."""
        assert self.config.embedding is not None
        return embedding_fingerprint(self.config.embedding)

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for an embedding that is not named or does not exist."""
        super().preflight(task, settings, has_corpus=has_corpus)
        check_embedding_exists(self.config.embedding)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by the best rank that a passage has among the nearest of any train row.

        Ties go to the higher cosine, then to the earlier passage, as with BM25 ranks; passages that are near to no row
        come last.
        """
        if not len(candidates.rank):
            return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda indices: [])
        most = self.config.neighbors
        passages, rows = self._vectors(run, len(candidates.rank))
        nearest = find_nearest(passages, rows, most)
        order = np.lexsort((np.arange(len(nearest.rank)), -nearest.cosine, nearest.rank))
        names = [example.id for example in run.examples]

        def reason(rank: int, row: int, cosine: float) -> str:
            if row < 0:
                return f"nearest_neighbors: among the {most} nearest of no example, cosine {cosine:.3f} at best"
            return f"nearest_neighbors: number {rank} of those nearest to {names[row]}, cosine {cosine:.3f}"

        def reasons(indices: Order) -> list[str]:
            columns = (nearest.rank[indices], nearest.row[indices], nearest.cosine[indices])
            return [reason(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]

        return Ranking(order, nearest.cosine, reasons)

    def _vectors(self, run: RunContext, count: int) -> tuple[Vectors, Vectors]:
        """Return vectors of length 1 of all passages and of all train rows."""
        embedding = self.config.embedding
        assert embedding is not None
        if is_vector_file(embedding):
            ids = [name for batch in read_batches(run.table, columns=["id"]) for name in batch.column(0).to_pylist()]
            passages = vectors_for(Path(embedding), ids, "retrieved passages")
            rows = vectors_for(Path(embedding), [example.id for example in run.examples], "train rows")
            return _unit(passages), _unit(rows)
        return _encoded(embedding, run, count)


@dataclass(frozen=True)
class Nearest:
    """For each passage the best rank (from 1) that any row gave it, which row and their cosine.

    Where no row has it among its nearest, the rank is `count` + 1, the row -1 and the cosine the highest of all rows.
    """

    rank: NDArray[np.int64]
    row: NDArray[np.int64]
    cosine: NDArray[np.float64]


def find_nearest(passages: Vectors, rows: Vectors, count: int) -> Nearest:
    """Search exactly, a block of rows at a time; vectors are of length 1 (or 0), shapes (N, d) and (Q, d)."""
    size = len(passages)
    count = min(count, size)
    rank = np.full(size, count + 1, dtype=np.int64)
    row_of = np.full(size, -1, dtype=np.int64)
    cosine = np.full(size, -1.0)
    highest = np.full(size, -1.0)
    with bar("finding nearest neighbors", len(rows)) as advance:
        for row, cosines in _cosines(passages, rows):
            np.maximum(highest, cosines, out=highest)
            indices = _best_indices(cosines, count)
            ranks = np.arange(1, count + 1)
            here = cosines[indices]
            better = (ranks < rank[indices]) | ((ranks == rank[indices]) & (here > cosine[indices]))
            chosen = indices[better]
            rank[chosen], row_of[chosen], cosine[chosen] = ranks[better], row, here[better]
            advance()
    return Nearest(rank, row_of, np.where(row_of < 0, highest, cosine))


def _cosines(passages: Vectors, rows: Vectors) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield each row's index and its cosines with all passages."""
    at_once = max(1, _NUMBERS_AT_ONCE // len(passages))
    for start in range(0, len(rows), at_once):
        block = rows[start : start + at_once] @ passages.T  # (rows, N)
        for number, cosines in enumerate(block, start):
            yield number, np.round(cosines.astype(np.float64), _DECIMALS)


def _best_indices(cosines: NDArray[np.float64], count: int) -> Order:
    """Return the indices of the highest cosines, highest first; ties go to the earlier passage."""
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    above, equal = np.flatnonzero(cosines > least), np.flatnonzero(cosines == least)
    indices = np.concatenate([above, equal[: count - len(above)]])
    return indices[np.lexsort((indices, -cosines[indices]))]


def _encoded(embedding: str, run: RunContext, count: int) -> tuple[Vectors, Vectors]:
    """Return vectors from a model; those of passages are in an unnamed file, so that they need not fit in memory."""
    from endtask.selectors.embeddings import ModelVectors

    model = ModelVectors(embedding, run.device)
    with tempfile.TemporaryFile(dir=run.folder) as file:  # the map keeps the file open
        if sys.platform == "linux":  # a full disk is an error here, while writing to the map it would end the process
            os.posix_fallocate(file.fileno(), 0, count * model.dimensions * np.dtype(np.float32).itemsize)
        passages = np.memmap(file, dtype=np.float32, mode="w+", shape=(count, model.dimensions))
    start = 0
    with bar("encoding retrieved passages", count) as advance:
        for batch in read_batches(run.table, columns=["text"]):
            texts = [(text, None) for text in batch.column(0).to_pylist()]
            passages[start : start + len(texts)] = _unit(model.of(texts))
            start += len(texts)
            advance(len(texts))
    return passages, _unit(model.of([(example.text, example.text_pair) for example in run.examples]))


def _unit(vectors: Vectors) -> Vectors:
    """Scale every vector to length 1 inplace, except those of length 0, and return them."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors
