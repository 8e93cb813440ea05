"""Pack tagged texts, with the index of each word's first token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.records import batched
from endtask.tokenization.packed_texts import PackedTexts, Ragged, runs, write_packed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NO_TOKEN = -1
"""Index of a word without a token of its own: truncated, or removed by the tokenizer."""

_BATCH = 2000
_STARTS = "word_starts"
Words = Sequence[str]


class WordStarts:
    """For each word of packed texts the index of its first token in the text."""

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
        """Return the words of some texts that have a token: their indices among all words, and those of their tokens.

        `starts` are the indices of the texts' first tokens.
        """
        counts = self.words[positions]
        numbers = runs(self._starts.offsets[positions], counts)
        word_starts = np.asarray(self._starts.values[numbers], dtype=np.int64)
        has_token = word_starts != NO_TOKEN
        return numbers[has_token], (word_starts + np.repeat(starts, counts))[has_token]


def pack_tagged(
    texts: Iterable[Words], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise texts given as words; joins the words of a text by blanks, as in a user's plain text."""
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
    """Return the first token of each word; `spans` (tokens, 2) are characters of the words joined by single blanks.

    A token belongs to one word only: of two words inside one token, the second has none.

    >>> first_tokens(["in", "Rome", "2"], np.array([[0, 0], [0, 2], [3, 5], [5, 7], [0, 0]])).tolist()
    [1, 2, -1]
    """
    lengths = np.asarray([len(word) for word in words], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    tokens = np.flatnonzero(spans[:, 1] > spans[:, 0])  # special tokens cover no character
    reached = np.searchsorted(spans[tokens, 1], starts, side="right")
    found = np.full(len(words), NO_TOKEN, dtype=np.int32)
    inside = reached < len(tokens)
    inside[inside] = spans[tokens[reached[inside]], 0] < ends[inside]
    inside[1:] &= reached[1:] != reached[:-1]
    found[inside] = tokens[reached[inside]]
    return found
