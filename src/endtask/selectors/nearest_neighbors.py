"""Rank by the nearest train row in an embedding: dense retrieval over the passages that BM25 retrieved."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from endtask.config import Settings
from endtask.config.section import Positive
from endtask.corpus.sources import HUB_PREFIX
from endtask.encoders.unit_vectors import unit_vectors
from endtask.errors import InputError, did_you_mean
from endtask.executors.choice import model_executor
from endtask.io.digests import file_digest, fingerprint
from endtask.io.selection_table import read_batches
from endtask.progress import Advance, bar
from endtask.selectors.base import Candidates, Order, PartConfig, Ranking, RunContext, Selector, selectors
from endtask.selectors.model_vectors import (
    KEY,
    ModelVectors,
    Vectors,
    encode_batch,
    encode_on_cluster,
    open_encoder,
)
from endtask.task import Task

_NUMBERS_AT_ONCE = 1 << 24
"""Cosines held at a time: 64 MB."""
_DECIMALS = 6
"""Cosines are rounded to so many decimals; later ones depend on the order of summation."""
_COLUMNS = {".parquet": ("id", "vector"), ".npz": ("ids", "vectors")}
_ROWS = 4096

Block = tuple[list[str], NDArray[Any]]


@selectors.register("nearest_neighbors")
class NearestNeighbors(Selector):
    """nearest to a train row in an embedding"""

    class Config(PartConfig):
        """Options of `nearest_neighbors`."""

        embedding: str | None = Field(
            None,
            description="an encoder (a folder, `package:NAME` or `hf:NAME`), or a file of vectors of passages and "
            "train rows (.parquet, .npz)",
        )
        neighbors: Positive = Field(1000, description="how many nearest passages each train row ranks")

    runs_model = True
    config: Config

    def external_path(self) -> str | None:
        """Return the embedding."""
        return self.config.embedding

    def external_digest(self) -> str:
        """Return a hash of the file of vectors, or of the model and its tokenizer."""
        assert self.config.embedding is not None
        return embedding_fingerprint(self.config.embedding)

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` if the embedding is not named or does not exist."""
        super().preflight(task, settings, has_corpus=has_corpus)
        check_embedding_exists(self.config.embedding)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by the best rank that any train row gives to a passage.

        Ties go to the higher cosine, then to the earlier passage; passages that are near to no row come last.
        """
        if not len(candidates.rank):
            return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda indices: [])
        neighbors = self.config.neighbors
        passages, rows = self._vectors(run, len(candidates.rank))
        nearest = find_nearest(passages, rows, neighbors)
        order = np.lexsort((np.arange(len(nearest.rank)), -nearest.cosine, nearest.rank))
        names = [example.id for example in run.examples]

        def reason(rank: int, row: int, cosine: float) -> str:
            if row < 0:
                return f"nearest_neighbors: among the {neighbors} nearest of no example, cosine {cosine:.3f} at best"
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
            return unit_vectors(passages, out=passages), unit_vectors(rows, out=rows)
        return _encoded(embedding, run, count)


@dataclass(frozen=True)
class Nearest:
    """For each passage the best rank (from 1) that any row gave it, that row, and their cosine.

    A passage that is near to no row has the rank `count` + 1, the row -1 and the highest cosine of all rows.
    """

    rank: NDArray[np.int64]
    row: NDArray[np.int64]
    cosine: NDArray[np.float64]


def find_nearest(passages: Vectors, rows: Vectors, count: int) -> Nearest:
    """Find the `count` nearest passages of each row, exactly; vectors have length 1 or 0, shapes (N, d), (Q, d)."""
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
            best = cosines[indices]
            better = (ranks < rank[indices]) | ((ranks == rank[indices]) & (best > cosine[indices]))
            improved = indices[better]
            rank[improved], row_of[improved], cosine[improved] = ranks[better], row, best[better]
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
    """Return vectors of a model; the vectors of passages are mapped from an unnamed file, not held in memory."""
    model = ModelVectors(embedding, run.device)
    with TemporaryFile(dir=run.folder) as file:  # the map keeps the file open
        if sys.platform == "linux":  # on a full disk this raises, while writing to the map kills the process
            os.posix_fallocate(file.fileno(), 0, count * model.dimensions * np.dtype(np.float32).itemsize)
        passages = np.memmap(file, dtype=np.float32, mode="w+", shape=(count, model.dimensions))
    start = 0
    with bar("encoding retrieved passages", count) as advance:
        for vectors in _passage_vectors(embedding, model, run, advance):
            passages[start : start + len(vectors)] = vectors
            start += len(vectors)
    return passages, unit_vectors(model.encode([(example.text, example.text_pair) for example in run.examples]))


def _passage_vectors(embedding: str, model: ModelVectors, run: RunContext, advance: Advance) -> Iterator[Vectors]:
    """Yield blocks of vectors in the order of the table, made here or by the machines of a cluster."""
    assert run.folder is not None
    executor = None if run.run is None else model_executor(run.run, run.folder)
    if executor is not None:
        yield from encode_on_cluster(embedding, run, executor, advance)
        return
    for batch in read_batches(run.table, columns=["text"]):
        yield encode_batch(model, batch)
        advance(len(batch))


def is_vector_file(embedding: str) -> bool:
    """Return whether the setting names a file of vectors, and not a model.

    >>> is_vector_file("vectors.npz"), is_vector_file("package:some_model")
    (True, False)
    """
    return Path(embedding).suffix in _COLUMNS


def _check_file_exists(path: Path) -> None:
    if not path.is_file():
        raise InputError("no such file", path=path, key=KEY)


def vectors_for(path: Path, ids: Sequence[str], what: str) -> Vectors:
    """Return the vectors of some ids, in their order: (ids, dimensions); errors name `what` the ids are."""
    indices = {name: index for index, name in enumerate(ids)}
    has_vector = np.zeros(len(ids), dtype=bool)
    vectors: Vectors | None = None
    for names, block in _blocks(path):
        rows = [(row, indices[name]) for row, name in enumerate(names) if name in indices]
        vectors = _empty_vectors(len(ids), block, path) if vectors is None else vectors
        if block.shape[1] != vectors.shape[1]:
            message = f"vectors of {vectors.shape[1]} and of {block.shape[1]} numbers"
            raise InputError(message, path=path, key=KEY)
        for row, index in rows:
            if has_vector[index]:
                raise InputError(f"two vectors for {ids[index]!r}", path=path, key=KEY)
            has_vector[index] = True
            vectors[index] = block[row]
    _check_complete(has_vector, ids, what, path)
    assert vectors is not None
    if not np.isfinite(vectors).all():
        bad = ids[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise InputError(f"the vector of {bad!r} holds a number that is not finite", path=path, key=KEY)
    return vectors


def _empty_vectors(count: int, block: NDArray[Any], path: Path) -> Vectors:
    if block.ndim != 2 or not block.shape[1]:
        raise InputError(f"vectors of shape {block.shape}, not one row of numbers for each id", path=path, key=KEY)
    return np.zeros((count, block.shape[1]), dtype=np.float32)


def _check_complete(has_vector: NDArray[np.bool_], ids: Sequence[str], what: str, path: Path) -> None:
    if has_vector.all() and len(has_vector):
        return
    missing = np.flatnonzero(~has_vector)
    example = f", such as {ids[int(missing[0])]!r}" if len(missing) else ""
    raise InputError(f"no vector for {len(missing):,} of {len(ids):,} {what}{example}", path=path, key=KEY)


def _blocks(path: Path) -> Iterator[Block]:
    """Yield the ids and vectors of a file, some thousand at a time."""
    _check_file_exists(path)
    if path.suffix == ".parquet":
        yield from _parquet_blocks(path)
        return
    with _read_errors(path), np.load(path, allow_pickle=False) as arrays:
        _check_columns(_COLUMNS[".npz"], arrays.files, path)
        ids, vectors = [_as_text(name) for name in arrays["ids"]], arrays["vectors"]
    if vectors.ndim != 2 or len(ids) != len(vectors):
        message = f"{len(ids):,} ids for vectors of shape {vectors.shape}"
        raise InputError(message, path=path, key=KEY, hint="one row of numbers for each id")
    if vectors.dtype.kind not in "fiu":
        raise InputError(f"vectors of {vectors.dtype}, which are no numbers", path=path, key=KEY)
    for start in range(0, len(ids), _ROWS):
        yield ids[start : start + _ROWS], vectors[start : start + _ROWS]


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Turn errors of the libraries into `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the libraries raise many types for a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be read: {reason}", path=path, key=KEY) from None


def _as_text(name: Any) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def _parquet_blocks(path: Path) -> Iterator[Block]:
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with _read_errors(path), parquet.ParquetFile(path) as file:
        _check_columns(_COLUMNS[".parquet"], file.schema_arrow.names, path)
        are_vectors = _is_list_of_numbers(file.schema_arrow.field("vector").type)
        for batch in file.iter_batches(_ROWS, columns=["id", "vector"]):
            names, lists = batch.column("id"), batch.column("vector")
            lengths = set(compute.list_value_length(lists).to_pylist()) if are_vectors else {None}
            if len(lengths) != 1 or None in lengths:
                hint = "a list of numbers in every row, all of one length"
                raise InputError("the column vector holds other things", path=path, key=KEY, hint=hint)
            values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
            yield [_as_text(name) for name in names.to_pylist()], values.reshape(len(batch), -1)


def _is_list_of_numbers(arrow_type: Any) -> bool:
    from pyarrow import types

    if not (types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)):
        return False
    return bool(types.is_floating(arrow_type.value_type) or types.is_integer(arrow_type.value_type))


def _check_columns(names: Sequence[str], present: Sequence[str], path: Path) -> None:
    for name in names:
        if name not in present:
            hint = did_you_mean(name, present) if present else "the file is empty"
            raise InputError(f"holds no {name!r}", path=path, key=KEY, hint=hint)


def check_embedding_exists(embedding: str | None) -> None:
    """Raise `InputError` if the embedding is not named, does not exist or has no valid configuration."""
    if embedding is None:
        hint = "a model's folder, package:NAME, hf:NAME, or a file of vectors"
        raise InputError("nearest_neighbors needs an embedding", key=KEY, hint=hint)
    if is_vector_file(embedding):
        _check_file_exists(Path(embedding))
    else:
        open_encoder(embedding)


def embedding_fingerprint(embedding: str) -> str:
    """Return a digest of the file of vectors, or of the model and its tokenizer."""
    if is_vector_file(embedding):
        return file_digest(Path(embedding))
    from endtask.encoders.checkpoint_files import TOKENIZER_SUFFIXES, checkpoint_fingerprint, config_file

    model = checkpoint_fingerprint(embedding)
    if embedding.startswith(HUB_PREFIX):
        return model  # the revision, which the tokenizer shares
    files = sorted(file for file in config_file(embedding).parent.iterdir() if file.suffix in TOKENIZER_SUFFIXES)
    return fingerprint(model, [(file.name, file_digest(file)) for file in files])
