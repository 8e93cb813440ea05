"""Token ids of many texts in one memory-mapped file, tokenised once and read by position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.files.atomic import whole_file, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BATCH = 2000
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

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens per text, special tokens included."""
        return np.diff(self.offsets)


def pack_passages(
    texts: Iterable[str], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise passages; one longer than `max_length` is cut into several texts, so nothing of it is lost.

    The authors' code truncates instead and drops the tail of every long passage.
    """
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def pieces() -> Iterator[tuple[list[int], int]]:
        stream = iter(texts)
        while chunk := list(islice(stream, _BATCH)):
            for ids in tokenizer(chunk, add_special_tokens=False, verbose=False)["input_ids"]:
                for start in range(0, len(ids), max_length - 2):
                    piece = [cls, *ids[start : start + max_length - 2], sep]
                    yield piece, len(piece)

    return _write(pieces(), len(tokenizer), folder)


def pack_examples(
    texts: Iterable[Texts], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise task texts, one packed text per example, truncated to `max_length`."""

    def encoded() -> Iterator[tuple[list[int], int]]:
        stream = iter(texts)
        while chunk := list(islice(stream, _BATCH)):
            for ids, types in encode(chunk, tokenizer, max_length):
                yield ids, len(types) - sum(types)

    return _write(encoded(), len(tokenizer), folder)


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


def _write(pieces: Iterable[tuple[list[int], int]], vocabulary: int, folder: Path) -> PackedTexts:
    dtype = np.uint16 if vocabulary <= 1 << 16 else np.uint32
    folder.mkdir(parents=True, exist_ok=True)
    offsets, second = [0], []
    with whole_file(folder / "tokens.bin") as aside, open(aside, "wb") as file:
        for ids, second_start in pieces:
            np.asarray(ids, dtype=dtype).tofile(file)
            offsets.append(offsets[-1] + len(ids))
            second.append(second_start)
    _save_array(folder / "offsets.npy", np.asarray(offsets, dtype=np.int64))
    _save_array(folder / "second.npy", np.asarray(second, dtype=np.int32))
    write_json(folder / "shape.json", {"tokens": offsets[-1], "texts": len(second), "dtype": np.dtype(dtype).name})
    return PackedTexts(folder)


def _save_array(path: Path, array: NDArray[np.int64] | NDArray[np.int32]) -> None:
    with whole_file(path) as aside, open(aside, "wb") as file:
        np.save(file, array)
