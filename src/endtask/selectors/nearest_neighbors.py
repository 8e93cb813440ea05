"""The passages nearest to each train row in a given embedding: dense retrieval over what BM25 brought."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import SelectionStatistics, read_batches
from endtask.progress import bar
from endtask.selectors.inputs import Inputs, Order
from endtask.selectors.ranking import Ranking
from endtask.selectors.vector_files import Vectors, is_vector_file, vectors_for

_NUMBERS_AT_ONCE = 1 << 24
"""Cosines held at a time: 64 MB."""
_DECIMALS = 6
"""Kept of a cosine: those beyond depend on the order in which a machine adds up."""


def rank_neighbors(inputs: Inputs, statistics: SelectionStatistics) -> Ranking:
    """Rank by the best place a passage has among the `select.neighbors` nearest of any train row.

    As with BM25's ranks, ties go to the higher cosine, then to the earlier passage; what is near to no row comes last.
    """
    if not len(statistics.rank):
        return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda places: [])
    passages, rows = _vectors(inputs, len(statistics.rank))
    nearest = find_nearest(passages, rows, inputs.settings.neighbors)
    order = np.lexsort((np.arange(len(nearest.rank)), -nearest.cosine, nearest.rank))
    names = [example.id for example in inputs.examples]
    most = inputs.settings.neighbors

    def reason(rank: int, row: int, cosine: float) -> str:
        if row < 0:
            return f"neighbors: among the {most} nearest of no example, cosine {cosine:.3f} at best"
        return f"neighbors: number {rank} of those nearest to {names[row]}, cosine {cosine:.3f}"

    def reasons(places: Order) -> list[str]:
        columns = (nearest.rank[places], nearest.row[places], nearest.cosine[places])
        return [reason(*told) for told in zip(*(column.tolist() for column in columns), strict=True)]

    return Ranking(order, nearest.cosine, reasons)


@dataclass(frozen=True)
class Nearest:
    """For each passage the best rank (from 1) that any row gave it, which row and their cosine.

    Where no row has it among its nearest, the rank is one more than they count, the row -1 and the cosine the highest.
    """

    rank: NDArray[np.int64]
    row: NDArray[np.int64]
    cosine: NDArray[np.float64]


def find_nearest(passages: Vectors, rows: Vectors, count: int) -> Nearest:
    """Exact search, a block of rows at a time; vectors are of length 1 (or 0), shapes (N, d) and (Q, d)."""
    size = len(passages)
    count = min(count, size)
    rank = np.full(size, count + 1, dtype=np.int64)
    row_of = np.full(size, -1, dtype=np.int64)
    cosine = np.full(size, -1.0)
    highest = np.full(size, -1.0)
    with bar("finding nearest neighbors", len(rows)) as advance:
        for row, cosines in _cosines(passages, rows):
            np.maximum(highest, cosines, out=highest)
            places = _best_places(cosines, count)
            ranks = np.arange(1, count + 1)
            here = cosines[places]
            better = (ranks < rank[places]) | ((ranks == rank[places]) & (here > cosine[places]))
            chosen = places[better]
            rank[chosen], row_of[chosen], cosine[chosen] = ranks[better], row, here[better]
            advance()
    return Nearest(rank, row_of, np.where(row_of < 0, highest, cosine))


def _cosines(passages: Vectors, rows: Vectors) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Each row's number, and its cosines with all passages."""
    at_once = max(1, _NUMBERS_AT_ONCE // len(passages))
    for start in range(0, len(rows), at_once):
        block = rows[start : start + at_once] @ passages.T  # (rows, N)
        for number, cosines in enumerate(block, start):
            yield number, np.round(cosines.astype(np.float64), _DECIMALS)


def _best_places(cosines: NDArray[np.float64], count: int) -> Order:
    """The places of the highest, highest first; of equal ones the earlier."""
    least = np.partition(cosines, len(cosines) - count)[len(cosines) - count]
    above, equal = np.flatnonzero(cosines > least), np.flatnonzero(cosines == least)
    places = np.concatenate([above, equal[: count - len(above)]])
    return places[np.lexsort((places, -cosines[places]))]


def _vectors(inputs: Inputs, count: int) -> tuple[Vectors, Vectors]:
    """Vectors of length 1 of all passages and of all train rows."""
    embedding = inputs.settings.embedding
    assert embedding is not None
    table = inputs.retrieved / RETRIEVED
    if is_vector_file(embedding):
        ids = [name for batch in read_batches(table, columns=["id"]) for name in batch.column(0).to_pylist()]
        passages = vectors_for(Path(embedding), ids, "retrieved passages")
        rows = vectors_for(Path(embedding), [example.id for example in inputs.examples], "train rows")
        return _unit(passages), _unit(rows)
    return _encoded(inputs, table, count)


def _encoded(inputs: Inputs, table: Path, count: int) -> tuple[Vectors, Vectors]:
    """The same from a model; the passages' lie in a file without a name, which memory need not hold."""
    from endtask.selectors.model_vectors import ModelVectors

    assert inputs.settings.embedding is not None
    model = ModelVectors(inputs.settings.embedding, inputs.device)
    with tempfile.TemporaryFile(dir=inputs.folder) as file:  # the map keeps the file open
        if sys.platform == "linux":  # a full disk is an error here, while writing to the map it would end the process
            os.posix_fallocate(file.fileno(), 0, count * model.dimensions * np.dtype(np.float32).itemsize)
        passages = np.memmap(file, dtype=np.float32, mode="w+", shape=(count, model.dimensions))
    start = 0
    with bar("encoding what was retrieved", count) as advance:
        for batch in read_batches(table, columns=["text"]):
            texts = [(text, None) for text in batch.column(0).to_pylist()]
            passages[start : start + len(texts)] = _unit(model.of(texts))
            start += len(texts)
            advance(len(texts))
    return passages, _unit(model.of([(example.text, example.text_pair) for example in inputs.examples]))


def _unit(vectors: Vectors) -> Vectors:
    """Every vector scaled to length 1, in place, but for those of length 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors
