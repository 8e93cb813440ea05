"""Embeddings of passages and train rows: from files of vectors, or from an encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.corpus.sources import HUB_PREFIX
from endtask.errors import InputError, did_you_mean
from endtask.io.digests import file_digest, fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from endtask.encoders.checkpoint import Checkpoint

KEY = "select.embedding"
SUFFIXES = (".parquet", ".npz", ".npy", ".safetensors")
_ROWS = 4096
_NAMES = {".parquet": ("id", "vector"), ".npz": ("ids", "vectors"), ".safetensors": ("vectors",)}

Vectors = NDArray[np.float32]
Block = tuple[list[str], NDArray[Any]]


def is_vector_file(embedding: str) -> bool:
    """Whether the setting names a file of vectors, and not a model.

    >>> is_vector_file("vectors.npy"), is_vector_file("package:some_model")
    (True, False)
    """
    return Path(embedding).suffix in SUFFIXES


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the file, and for formats without strings also the file of ids, one per line: `vectors.ids.txt`."""
    return (path, path.with_suffix(".ids.txt")) if path.suffix in (".npy", ".safetensors") else (path,)


def check_files_exist(path: Path) -> None:
    """Raise `InputError` for a missing file."""
    for file in files_of(path):
        if not file.is_file():
            what = "no such file" if file == path else "no such file; it has the ids of the vectors, one a line"
            raise InputError(what, path=file, key=KEY)


def vectors_for(path: Path, wanted: Sequence[str], what: str) -> Vectors:
    """Return the vectors of some ids, in their order: (ids, dimensions); errors name `what` the ids are."""
    indices = {name: index for index, name in enumerate(wanted)}
    found = np.zeros(len(wanted), dtype=bool)
    vectors: Vectors | None = None
    for ids, block in _blocks(path):
        rows = [(row, indices[name]) for row, name in enumerate(ids) if name in indices]
        vectors = _empty_vectors(len(wanted), block, path) if vectors is None else vectors
        if block.shape[1] != vectors.shape[1]:
            message = f"vectors of {vectors.shape[1]} and of {block.shape[1]} numbers"
            raise InputError(message, path=path, key=KEY)
        for row, index in rows:
            if found[index]:
                raise InputError(f"two vectors for {wanted[index]!r}", path=path, key=KEY)
            found[index] = True
            vectors[index] = block[row]
    _check_no_gaps(found, wanted, what, path)
    assert vectors is not None
    if not np.isfinite(vectors).all():
        bad = wanted[int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])]
        raise InputError(f"the vector of {bad!r} holds a number that is not finite", path=path, key=KEY)
    return vectors


def _empty_vectors(count: int, block: NDArray[Any], path: Path) -> Vectors:
    if block.ndim != 2 or not block.shape[1]:
        raise InputError(f"vectors of shape {block.shape}, not one row of numbers for each id", path=path, key=KEY)
    return np.zeros((count, block.shape[1]), dtype=np.float32)


def _check_no_gaps(found: NDArray[np.bool_], wanted: Sequence[str], what: str, path: Path) -> None:
    if found.all() and len(found):
        return
    missing = np.flatnonzero(~found)
    example = f", such as {wanted[int(missing[0])]!r}" if len(missing) else ""
    raise InputError(f"no vector for {len(missing):,} of {len(wanted):,} {what}{example}", path=path, key=KEY)


def _blocks(path: Path) -> Iterator[Block]:
    check_files_exist(path)
    if path.suffix == ".parquet":
        yield from _parquet_blocks(path)
        return
    ids, vectors = _arrays(path)
    if vectors.ndim != 2 or len(ids) != len(vectors):
        message = f"{len(ids):,} ids for vectors of shape {vectors.shape}"
        raise InputError(message, path=path, key=KEY, hint="one row of numbers for each id")
    if vectors.dtype.kind not in "fiu":
        raise InputError(f"vectors of {vectors.dtype}, which are no numbers", path=path, key=KEY)
    for start in range(0, len(ids), _ROWS):
        yield ids[start : start + _ROWS], vectors[start : start + _ROWS]


def _arrays(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Return all ids and their vectors, which stay on disk where the format allows."""
    with _readable(path):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                _require(_NAMES[".npz"], arrays.files, path)
                return [_as_text(name) for name in arrays["ids"]], arrays["vectors"]
        vectors = np.load(path, mmap_mode="r", allow_pickle=False) if path.suffix == ".npy" else _tensor(path)
        return _lines(files_of(path)[1]), vectors


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of the libraries into `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the libraries raise many types for a damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"cannot be read: {reason}", path=path, key=KEY) from None


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file, split at line feeds only: an id may contain other line ends."""
    lines = path.read_bytes().decode("utf-8").split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _as_text(name: Any) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def _tensor(path: Path) -> NDArray[Any]:
    from safetensors import safe_open

    with safe_open(str(path), framework="np") as file:
        _require(_NAMES[".safetensors"], list(file.keys()), path)
        tensor: NDArray[Any] = file.get_tensor("vectors")
        return tensor


def _parquet_blocks(path: Path) -> Iterator[Block]:
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with _readable(path), parquet.ParquetFile(path) as file:
        _require(_NAMES[".parquet"], file.schema_arrow.names, path)
        are_vectors = _holds_lists_of_numbers(file.schema_arrow.field("vector").type)
        for batch in file.iter_batches(_ROWS, columns=["id", "vector"]):
            names, lists = batch.column("id"), batch.column("vector")
            lengths = set(compute.list_value_length(lists).to_pylist()) if are_vectors else {None}
            if len(lengths) != 1 or None in lengths:
                hint = "a list of numbers in every row, all of one length"
                raise InputError("the column vector holds other things", path=path, key=KEY, hint=hint)
            values = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
            yield [_as_text(name) for name in names.to_pylist()], values.reshape(len(batch), -1)


def _holds_lists_of_numbers(kind: Any) -> bool:
    """Return whether a column of this Arrow type holds lists of numbers."""
    from pyarrow import types

    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return False
    return bool(types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _require(names: Sequence[str], present: Sequence[str], path: Path) -> None:
    for name in names:
        if name not in present:
            hint = did_you_mean(name, present) if present else "there is nothing in it"
            raise InputError(f"holds no {name!r}", path=path, key=KEY, hint=hint)


_TOKENS = 256
"""The most tokens of a text; later ones hardly change its mean vector, and sentence encoders train on no more."""
_TEXTS_AT_ONCE = 32

Text = tuple[str, str | None]


class ModelVectors:
    """An encoder from a folder, `package:NAME` or `hf:NAME`, with its own tokenizer, without dropout."""

    def __init__(self, path: str, device: str = "auto") -> None:
        import torch

        from endtask.config import ModelSettings
        from endtask.encoders.checkpoint import load_network

        best = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = torch.device(best if device == "auto" else device)
        with _naming_the_setting():
            checkpoint, self._tokenizer = open_encoder(path)
            settings = ModelSettings(dropout=0.0)
            # No head is used; their random weights have no part in the vectors.
            network = load_network(
                checkpoint, settings, pad_id=self._tokenizer.pad_token_id, labels=("no", "yes"), seed=0
            )
        self._network = network.to(self._device).eval()
        self._longest = min(checkpoint.max_length, _TOKENS)
        self.dimensions = int(network.config.hidden_size)

    def of(self, texts: Sequence[Text]) -> Vectors:
        """Return a vector for each text or pair, in order."""
        import torch

        from endtask.encoders.batch import lay_out
        from endtask.encoders.heads import pool
        from endtask.tokenization.packed_texts import pack_examples

        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        if not len(texts):
            return vectors
        with TemporaryDirectory() as folder, torch.inference_mode():
            packed = pack_examples(texts, self._tokenizer, self._longest, Path(folder))
            layout = self._network.layout(int(packed.lengths.max()))
            by_length = np.argsort(packed.lengths, kind="stable")
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                positions = by_length[start : start + _TEXTS_AT_ONCE]
                batch = lay_out(packed, positions, layout).to(self._device)
                vectors[positions] = pool(self._network(batch), batch, "mean").float().cpu().numpy()
        return vectors


def open_encoder(path: str) -> tuple[Checkpoint, PreTrainedTokenizerFast]:
    """Return the checkpoint and its tokenizer; raises `InputError` where they do not fit."""
    from endtask.encoders.checkpoint import check_tokenizer, open_checkpoint
    from endtask.tokenization.tokenizer import load_tokenizer

    with _naming_the_setting():
        checkpoint = open_checkpoint(path)
        tokenizer = load_tokenizer(path, key=KEY)
        check_tokenizer(checkpoint, tokenizer, key=KEY)
    return checkpoint, tokenizer


@contextmanager
def _naming_the_setting() -> Iterator[None]:
    """Name `select.embedding` in errors about checkpoints, which otherwise name `model.path`."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("'model.path'", repr(KEY))) from None


_TOKENIZER_SUFFIXES = (".json", ".txt", ".model")


def check_embedding_exists(embedding: str | None) -> None:
    """Raise `InputError` for an embedding that is not named or does not exist; reads a model's configuration."""
    if embedding is None:
        hint = "a model's folder, package:NAME, hf:NAME, or a file of vectors"
        raise InputError("nearest_neighbors needs an embedding", key=KEY, hint=hint)
    if is_vector_file(embedding):
        check_files_exist(Path(embedding))
        return
    open_encoder(embedding)


def embedding_fingerprint(embedding: str) -> str:
    """Return a digest of the files of vectors, or of the model and its tokenizer."""
    if is_vector_file(embedding):
        return fingerprint([file_digest(file) for file in files_of(Path(embedding))])
    from endtask.encoders.checkpoint_files import checkpoint_fingerprint, config_file

    model = checkpoint_fingerprint(embedding)
    if embedding.startswith(HUB_PREFIX):
        return model  # the revision, which the tokenizer shares
    files = sorted(file for file in config_file(embedding).parent.iterdir() if file.suffix in _TOKENIZER_SUFFIXES)
    return fingerprint(model, [(file.name, file_digest(file)) for file in files])
