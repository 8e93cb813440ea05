"""Token ids of many texts in one memory-mapped file, tokenised once and read by position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from endtask.io.atomic import whole_file, write_json
from endtask.io.run_layout import TASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Ragged:
    """One array per text, read by position; `of` is the row that belongs to a text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [np.array([1, 2]), np.array([], dtype=int), np.array([3])]
    ...     kept = Ragged.write(Path(folder), "numbers", rows, np.int32)
    ...     [kept[position].tolist() for position in range(3)]
    [[1, 2], [], [3]]
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
        self.offsets: NDArray[np.int64] = np.load(folder / f"{name}-offsets.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> NDArray[Any]:
        return np.asarray(self.values[self.offsets[position] : self.offsets[position + 1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each text."""
        return np.diff(self.offsets)

    @classmethod
    def write(
        cls, folder: Path, name: str, rows: list[NDArray[Any]], dtype: DTypeLike, columns: int | None = None
    ) -> Ragged:
        """Write one array per text, of `columns` columns each if there are several."""
        empty = np.zeros((0,) if columns is None else (0, columns), dtype=dtype)
        save_array(folder / f"{name}.npy", np.concatenate([empty, *rows]).astype(dtype))
        save_array(folder / f"{name}-offsets.npy", np.cumsum([0, *map(len, rows)], dtype=np.int64))
        return cls(folder, name)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array, whole or not at all."""
    with whole_file(path) as aside, open(aside, "wb") as file:
        np.save(file, array)


_BATCH = 2000
_COUNTED_AT_ONCE = 1 << 24
_EXAMPLES = "examples.npy"
Texts = tuple[str, str | None]


class PackedTexts:
    """Token ids with [CLS] and [SEP] in place, one run of ids per text.

    `second[i]` is where the second text of a pair starts inside text i (its length when there is none), from which
    token types follow.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shape = json.loads((folder / "shape.json").read_text(encoding="utf-8"))
        self._tokens: NDArray[np.uint32] | NDArray[np.uint16]
        if shape["tokens"]:
            self._tokens = np.memmap(folder / "tokens.bin", dtype=shape["dtype"], mode="r", shape=(shape["tokens"],))
        else:
            self._tokens = np.zeros(0, dtype=shape["dtype"])
        self.offsets: NDArray[np.int64] = np.load(folder / "offsets.npy")
        self.second: NDArray[np.int32] = np.load(folder / "second.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> NDArray[np.int64]:
        start, end = self.offsets[position], self.offsets[position + 1]
        return self._tokens[start:end].astype(np.int64)

    def gather(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens of several texts end to end, and their lengths."""
        starts = self.offsets[positions]
        lengths = self.offsets[positions + 1] - starts
        return self._tokens[runs(starts, lengths)].astype(np.int64), lengths

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each token of the vocabulary occurs."""
        counts = np.zeros(vocabulary, dtype=np.int64)
        for start in range(0, len(self._tokens), _COUNTED_AT_ONCE):
            counts += np.bincount(self._tokens[start : start + _COUNTED_AT_ONCE], minlength=vocabulary)
        return counts

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per text, special tokens included."""
        return np.diff(self.offsets)

    @cached_property
    def examples(self) -> NDArray[np.int64]:
        """Which example each text belongs to, ascending: its own, unless it is one of several windows."""
        path = self.folder / _EXAMPLES
        numbers: NDArray[np.int64] = np.load(path) if path.exists() else np.arange(len(self))
        return numbers

    @property
    def windows(self) -> NDArray[np.int64]:
        """Texts per example."""
        return np.bincount(self.examples)


def runs(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many numbers from each start on, one run after the other.

    >>> runs(np.array([7, 3]), np.array([2, 1])).tolist()
    [7, 8, 3]
    """
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(int(counts.sum()))


def pack_passages(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerFast,
    max_length: int,
    folder: Path,
    *,
    truncate: bool = False,
) -> PackedTexts:
    """Tokenise passages; one longer than `max_length` is cut into several texts, so nothing of it is lost.

    With `truncate` the tail of every long passage is dropped, as the TLM authors' code does.
    """
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def pieces() -> Iterator[tuple[list[int], int]]:
        stream = iter(texts)
        while chunk := list(islice(stream, _BATCH)):
            for ids in tokenizer(chunk, add_special_tokens=False, verbose=False)["input_ids"]:
                for start in range(0, min(len(ids), 1) if truncate else len(ids), max_length - 2):
                    piece = [cls, *ids[start : start + max_length - 2], sep]
                    yield piece, len(piece)

    return write_packed(pieces(), len(tokenizer), folder)


def packed_of(packed: Path, name: str | None) -> Path:
    """Where the pack stage leaves the texts of a auxiliary task; without a name, of the end task."""
    return packed if name is None else packed / TASKS / name


def pack_examples(
    texts: Iterable[Texts], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise task texts, one packed text per example, truncated to `max_length`."""

    def encoded() -> Iterator[tuple[list[int], int]]:
        stream = iter(texts)
        while chunk := list(islice(stream, _BATCH)):
            for ids, types in encode(chunk, tokenizer, max_length):
                yield ids, len(types) - sum(types)

    return write_packed(encoded(), len(tokenizer), folder)


def pack_windows(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, max_length: int, window_stride: int, folder: Path
) -> PackedTexts:
    """Tokenise single task texts; one longer than `max_length` becomes windows that start `window_stride` tokens apart.

    The last window is the first that reaches the end of the text, so every token is in some window.
    """
    examples: list[int] = []
    options = window_options(tokenizer, max_length, window_stride)

    def windows() -> Iterator[tuple[list[int], int]]:
        stream, before = iter(texts), 0
        while chunk := list(islice(stream, _BATCH)):
            encoding = tokenizer(chunk, max_length=max_length, **options)
            for example, ids in zip(encoding["overflow_to_sample_mapping"], encoding["input_ids"], strict=True):
                examples.append(before + example)
                yield ids, len(ids)
            before += len(chunk)

    write_packed(windows(), len(tokenizer), folder)
    save_array(folder / _EXAMPLES, np.asarray(examples, dtype=np.int64))
    return PackedTexts(folder)


def window_options(tokenizer: PreTrainedTokenizerFast, max_length: int, window_stride: int) -> dict[str, Any]:
    """What to tell a tokenizer so that it cuts single texts into windows; its own `stride` is their overlap."""
    inside = max_length - tokenizer.num_special_tokens_to_add(pair=False)
    return {"truncation": True, "return_overflowing_tokens": True, "stride": max(0, inside - window_stride)}


def encode(
    texts: list[Texts], tokenizer: PreTrainedTokenizerFast, max_length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids and token types of texts or pairs, exactly as the saved tokenizer gives them to any user."""
    with_pair = any(pair is not None for _, pair in texts)
    encoding = tokenizer(
        [text for text, _ in texts],
        [pair or "" for _, pair in texts] if with_pair else None,
        truncation=True,
        max_length=max_length,
        return_token_type_ids=True,
    )
    return zip(encoding["input_ids"], encoding["token_type_ids"], strict=True)


def write_packed(pieces: Iterable[tuple[list[int], int]], vocabulary: int, folder: Path) -> PackedTexts:
    dtype = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _EXAMPLES).unlink(missing_ok=True)
    offsets, second = [0], []
    with whole_file(folder / "tokens.bin") as aside, open(aside, "wb") as file:
        for ids, second_start in pieces:
            np.asarray(ids, dtype=dtype).tofile(file)
            offsets.append(offsets[-1] + len(ids))
            second.append(second_start)
    save_array(folder / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    save_array(folder / "second.npy", np.asarray(second, dtype=np.int32))
    write_json(folder / "shape.json", {"tokens": offsets[-1], "texts": len(second), "dtype": np.dtype(dtype).name})
    return PackedTexts(folder)
