"""Task texts whose words are tagged: packed like any other, with the place of each word's first token beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.tokenization.packed_texts import PackedTexts, Ragged, runs, write_packed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NO_TOKEN = -1
"""The place of a word without a token of its own: one that was cut off, or of which the tokenizer leaves nothing."""

_BATCH = 2000
_PLACES = "word_places"
Words = Sequence[str]


class WordPlaces:
    """Where the words of packed texts start: for each word the place of its first token inside the text."""

    def __init__(self, texts: PackedTexts) -> None:
        self._places = Ragged(texts.folder, _PLACES)

    @property
    def words(self) -> NDArray[np.int64]:
        """Words per text, those without a token included."""
        return self._places.lengths

    @property
    def lost(self) -> int:
        """How many words have no token."""
        return int((self._places.values == NO_TOKEN).sum())

    def gather(
        self, positions: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words of some texts that have a token: their numbers among all words, and the places of their tokens.

        `starts` are the places at which the texts themselves start.
        """
        counts = self.words[positions]
        numbers = runs(self._places.offsets[positions], counts)
        places = np.asarray(self._places.values[numbers], dtype=np.int64)
        seen = places != NO_TOKEN
        return numbers[seen], (places + np.repeat(starts, counts))[seen]


def pack_tagged(
    texts: Iterable[Words], tokenizer: PreTrainedTokenizerFast, max_length: int, folder: Path
) -> PackedTexts:
    """Tokenise texts given as words; the words of a text are joined by blanks, as a user's plain text would be."""
    places: list[NDArray[np.int32]] = []

    def encoded() -> Iterator[tuple[list[int], int]]:
        stream = iter(texts)
        while chunk := list(islice(stream, _BATCH)):
            encoding = tokenizer(
                [" ".join(words) for words in chunk],
                truncation=True,
                max_length=max_length,
                return_offsets_mapping=True,
            )
            for words, ids, spans in zip(chunk, encoding["input_ids"], encoding["offset_mapping"], strict=True):
                places.append(first_tokens(words, np.asarray(spans, dtype=np.int64)))
                yield ids, len(ids)

    packed = write_packed(encoded(), len(tokenizer), folder)
    Ragged.write(folder, _PLACES, places, np.int32)
    return packed


def first_tokens(words: Words, spans: NDArray[np.int64]) -> NDArray[np.int32]:
    """The first token of each word; `spans` (tokens, 2) are characters of the words joined by single blanks.

    A token belongs to one word only: of two words inside one token the second has none.

    >>> first_tokens(["in", "Rome", "2"], np.array([[0, 0], [0, 2], [3, 5], [5, 7], [0, 0]])).tolist()
    [1, 2, -1]
    """
    lengths = np.asarray([len(word) for word in words], dtype=np.int64)
    ends = np.cumsum(lengths + 1) - 1
    starts = ends - lengths
    tokens = np.flatnonzero(spans[:, 1] > spans[:, 0])  # special tokens stand for no character
    reached = np.searchsorted(spans[tokens, 1], starts, side="right")
    found = np.full(len(words), NO_TOKEN, dtype=np.int32)
    inside = reached < len(tokens)
    inside[inside] = spans[tokens[reached[inside]], 0] < ends[inside]
    inside[1:] &= reached[1:] != reached[:-1]
    found[inside] = tokens[reached[inside]]
    return found
