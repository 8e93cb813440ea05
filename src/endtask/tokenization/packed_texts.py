"""Token ids of many texts in a memory-mapped file that is read by index, and the words of tagged texts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from endtask.io.atomic import atomic_file, write_json
from endtask.io.parsing import read_json
from endtask.io.run_layout import TASKS
from endtask.records import batched

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Ragged:
    """Arrays of different lengths, one per text, stored as two flat arrays and read by index.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [np.array([1, 2]), np.array([], dtype=int), np.array([3])]
    ...     ragged = Ragged.write(Path(folder), "numbers", rows, np.int32)
    ...     [ragged[index].tolist() for index in range(3)]
    [[1, 2], [], [3]]
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.values: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
        self.offsets: NDArray[np.int64] = np.load(folder / f"{name}-offsets.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[Any]:
        return np.asarray(self.values[self.offsets[index] : self.offsets[index + 1]])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows per text."""
        return np.diff(self.offsets)

    @classmethod
    def write(
        cls, folder: Path, name: str, rows: list[NDArray[Any]], dtype: DTypeLike, columns: int | None = None
    ) -> Ragged:
        """Write an array per text, each with `columns` columns, or one-dimensional by default."""
        empty = np.zeros((0,) if columns is None else (0, columns), dtype=dtype)
        save_array(folder / f"{name}.npy", np.concatenate([empty, *rows]).astype(dtype))
        save_array(folder / f"{name}-offsets.npy", np.cumsum([0, *map(len, rows)], dtype=np.int64))
        return cls(folder, name)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array atomically."""
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array)


_BATCH = 2000
_TOKENS_PER_COUNT = 1 << 24
_EXAMPLES = "examples.npy"
Texts = tuple[str, str | None]


class PackedTexts:
    """Token ids of texts, with [CLS] and [SEP].

    `second[i]` is the position in text i where the second text of a pair starts (the length of text i without one);
    token types follow from it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shape = read_json(folder / "shape.json")
        self._tokens: NDArray[np.uint32] | NDArray[np.uint16]
        if shape["tokens"]:
            self._tokens = np.memmap(folder / "tokens.bin", dtype=shape["dtype"], mode="r", shape=(shape["tokens"],))
        else:
            self._tokens = np.zeros(0, dtype=shape["dtype"])
        self.offsets: NDArray[np.int64] = np.load(folder / "offsets.npy")
        self.second: NDArray[np.int32] = np.load(folder / "second.npy")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        start, end = self.offsets[index], self.offsets[index + 1]
        return self._tokens[start:end].astype(np.int64)

    def gather(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concatenated tokens of several texts, and their lengths."""
        starts = self.offsets[positions]
        lengths = self.offsets[positions + 1] - starts
        return self._tokens[runs(starts, lengths)].astype(np.int64), lengths

    def token_counts(self, vocabulary: int) -> NDArray[np.int64]:
        """Return how often each token of the vocabulary occurs."""
        counts = np.zeros(vocabulary, dtype=np.int64)
        for start in range(0, len(self._tokens), _TOKENS_PER_COUNT):
            counts += np.bincount(self._tokens[start : start + _TOKENS_PER_COUNT], minlength=vocabulary)
        return counts

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per text, including special tokens."""
        return np.diff(self.offsets)

    @cached_property
    def examples(self) -> NDArray[np.int64]:
        """The index of each text's example, ascending; several windows may belong to one example."""
        path = self.folder / _EXAMPLES
        indices: NDArray[np.int64] = np.load(path) if path.exists() else np.arange(len(self))
        return indices

    @property
    def windows(self) -> NDArray[np.int64]:
        """Texts per example."""
        return np.bincount(self.examples)


def runs(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated ranges of `counts` consecutive numbers from each start.

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
    """Tokenise passages and split those longer than `max_length` into several texts, so that no token is lost.

    `truncate` drops the end of every long passage instead, as in the TLM authors' code.
    """
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def encoded() -> Iterator[tuple[list[int], int]]:
        for chunk in batched(texts, _BATCH):
            for ids in tokenizer(chunk, add_special_tokens=False, verbose=False)["input_ids"]:
                for start in range(0, min(len(ids), 1) if truncate else len(ids), max_length - 2):
                    text = [cls, *ids[start : start + max_length - 2], sep]
                    yield text, len(text)

    return write_packed(encoded(), len(tokenizer), folder)


def packed_folder(packed: Path, name: str | None) -> Path:
    """Return the folder in which the pack stage writes the texts of an auxiliary task; None is the end task."""
    return packed if name is None else packed / TASKS / name


def pack_examples(
    texts: Iterable[Texts], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise task texts, one packed text per example, truncated to `max_length`."""

    def encoded() -> Iterator[tuple[list[int], int]]:
        for chunk in batched(texts, _BATCH):
            for ids, types in encode(chunk, tokenizer, max_length):
                yield ids, len(types) - sum(types)

    return write_packed(encoded(), len(tokenizer), folder)


def pack_windows(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, max_length: int, window_stride: int, folder: Path
) -> PackedTexts:
    """Tokenise single task texts, and split long ones into windows that start `window_stride` tokens apart.

    The last window is the first that reaches the end of the text, so every token is in a window.
    """
    examples: list[int] = []
    options = window_options(tokenizer, max_length, window_stride)

    def windows() -> Iterator[tuple[list[int], int]]:
        first = 0
        for chunk in batched(texts, _BATCH):
            encoding = tokenizer(chunk, max_length=max_length, **options)
            for example, ids in zip(encoding["overflow_to_sample_mapping"], encoding["input_ids"], strict=True):
                examples.append(first + example)
                yield ids, len(ids)
            first += len(chunk)

    write_packed(windows(), len(tokenizer), folder)
    save_array(folder / _EXAMPLES, np.asarray(examples, dtype=np.int64))
    return PackedTexts(folder)


def window_options(tokenizer: PreTrainedTokenizerFast, max_length: int, window_stride: int) -> dict[str, Any]:
    """Return the arguments with which a tokenizer splits texts into windows; its `stride` is their overlap."""
    capacity = max_length - tokenizer.num_special_tokens_to_add(pair=False)
    return {"truncation": True, "return_overflowing_tokens": True, "stride": max(0, capacity - window_stride)}


def encode(
    texts: list[Texts], tokenizer: PreTrainedTokenizerFast, max_length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield token ids and token types of texts or pairs, exactly as the saved tokenizer returns them to a user."""
    has_pairs = any(pair is not None for _, pair in texts)
    encoding = tokenizer(
        [text for text, _ in texts],
        [pair or "" for _, pair in texts] if has_pairs else None,
        truncation=True,
        max_length=max_length,
        return_token_type_ids=True,
    )
    return zip(encoding["input_ids"], encoding["token_type_ids"], strict=True)


def write_packed(texts: Iterable[tuple[list[int], int]], vocabulary: int, folder: Path) -> PackedTexts:
    """Write texts as (token ids, start of the second text); ids have two bytes if the vocabulary allows it."""
    dtype = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _EXAMPLES).unlink(missing_ok=True)
    offsets, second = [0], []
    with atomic_file(folder / "tokens.bin") as temporary, open(temporary, "wb") as file:
        for ids, second_start in texts:
            np.asarray(ids, dtype=dtype).tofile(file)
            offsets.append(offsets[-1] + len(ids))
            second.append(second_start)
    save_array(folder / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    save_array(folder / "second.npy", np.asarray(second, dtype=np.int32))
    write_json(folder / "shape.json", {"tokens": offsets[-1], "texts": len(second), "dtype": np.dtype(dtype).name})
    return PackedTexts(folder)


def join_packed(parts: Sequence[Path], folder: Path) -> PackedTexts:
    """Write packed texts of the same tokenizer, one after the other, as `write_packed` would have done."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = [PackedTexts(part) for part in parts]
    with atomic_file(folder / "tokens.bin") as temporary, open(temporary, "wb") as file:
        for part in parts:
            with open(part / "tokens.bin", "rb") as source:
                shutil.copyfileobj(source, file)
    lengths = np.concatenate([np.zeros(1, dtype=np.int64), *(part.lengths for part in packed)])
    second = [np.zeros(0, dtype=np.int32), *(np.load(part / "second.npy") for part in parts)]
    offsets = np.cumsum(lengths, dtype=np.int64)
    save_array(folder / "offsets.npy", offsets)
    save_array(folder / "second.npy", np.concatenate(second).astype(np.int32))
    dtype = read_json(parts[0] / "shape.json")["dtype"]
    write_json(folder / "shape.json", {"tokens": int(offsets[-1]), "texts": len(offsets) - 1, "dtype": dtype})
    return PackedTexts(folder)


NO_TOKEN = -1
"""Index of a word without a token: truncated, removed by the tokenizer, or inside the token of another word."""

_STARTS = "word_starts"
Words = Sequence[str]


class WordStarts:
    """The index of the first token of each word in packed texts."""

    def __init__(self, texts: PackedTexts) -> None:
        self._starts = Ragged(texts.folder, _STARTS)

    @property
    def words(self) -> NDArray[np.int64]:
        """Words per text, including those without a token."""
        return self._starts.lengths

    @property
    def lost(self) -> int:
        """Number of words without a token."""
        return int((self._starts.values == NO_TOKEN).sum())

    def gather(
        self, positions: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the words with a token in some texts, and the indices of these tokens.

        `starts` are the indices of the texts' first tokens.
        """
        counts = self.words[positions]
        indices = runs(self._starts.offsets[positions], counts)
        word_starts = np.asarray(self._starts.values[indices], dtype=np.int64)
        has_token = word_starts != NO_TOKEN
        return indices[has_token], (word_starts + np.repeat(starts, counts))[has_token]


def pack_tagged(
    texts: Iterable[Words], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise tagged texts; joins the words of a text by blanks, as in plain text."""
    word_starts: list[NDArray[np.int32]] = []

    def encoded() -> Iterator[tuple[list[int], int]]:
        for chunk in batched(texts, _BATCH):
            encoding = tokenizer(
                [" ".join(words) for words in chunk],
                truncation=True,
                max_length=max_length,
                return_offsets_mapping=True,
            )
            for words, ids, spans in zip(chunk, encoding["input_ids"], encoding["offset_mapping"], strict=True):
                word_starts.append(first_tokens(words, np.asarray(spans, dtype=np.int64)))
                yield ids, len(ids)

    packed = write_packed(encoded(), len(tokenizer), folder)
    Ragged.write(folder, _STARTS, word_starts, np.int32)
    return packed


def first_tokens(words: Words, spans: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the first token of each word; `spans` (tokens, 2) are character spans in the words joined by blanks.

    A token belongs to one word only: of two words inside a token, the second has none.

    >>> first_tokens(["in", "Rome", "2"], np.array([[0, 0], [0, 2], [3, 5], [5, 7], [0, 0]])).tolist()
    [1, 2, -1]
    """
    lengths = np.asarray([len(word) for word in words], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    tokens = np.flatnonzero(spans[:, 1] > spans[:, 0])  # special tokens cover no character
    nearest = np.searchsorted(spans[tokens, 1], starts, side="right")  # first token that ends after the word's start
    first = np.full(len(words), NO_TOKEN, dtype=np.int32)
    has_token = nearest < len(tokens)
    has_token[has_token] = spans[tokens[nearest[has_token]], 0] < ends[has_token]
    has_token[1:] &= nearest[1:] != nearest[:-1]
    first[has_token] = tokens[nearest[has_token]]
    return first
