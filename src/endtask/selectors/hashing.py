"""Hashes of passages: a random number for every id, and hashed words and word pairs of every text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import read_batches, table_rows
from endtask.progress import bar
from endtask.records import Example
from endtask.retrieval.bm25.scan import ascii_folds, code_point, join_strings, rest_of_word, string_keys
from endtask.retrieval.compiled import compiled
from endtask.retrieval.words import HASH_FACTOR, HASH_START, character_classes, lower_cases
from endtask.seeds import derive, spread

BUCKETS = 10_000
"""The number of the DSIR paper."""

_START, _FACTOR = np.uint64(HASH_START), np.uint64(HASH_FACTOR)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)

Counts = NDArray[np.int64]


def draws(ids: Sequence[str], seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return a random 64-bit number for each id, independent of the other ids and their order.

    >>> bool(draws(["a", "b"], 0, "test")[1] == draws(["b"], 0, "test")[0] != draws(["b"], 1, "test")[0])
    True
    """
    return spread(string_keys(ids) ^ np.uint64(derive(seed, "select", purpose)))


def table_draws(table: Path, seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return a random number for each passage of a selection table."""
    ids = (batch.column(0).to_pylist() for batch in read_batches(table, columns=["id"]))
    return np.concatenate([np.zeros(0, dtype=np.uint64), *(draws(block, seed, purpose) for block in ids)])


@dataclass(frozen=True)
class WordKeys:
    """The words of some texts as 64-bit keys, end to end: text i has `keys[offsets[i]:offsets[i + 1]]`."""

    keys: NDArray[np.uint64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def owners(self) -> NDArray[np.int64]:
        """Return the index of the text of each word."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def word_keys(texts: Sequence[str]) -> WordKeys:
    """Return the keys of the words of all texts, split and lower-cased as in retrieval.

    >>> word_keys(["one two", "", "Two"]).offsets.tolist()
    [0, 2, 2, 3]
    """
    return _scan(*join_strings(texts, "utf-8", np.uint8))


def column_keys(column: Any) -> WordKeys:
    """Return the keys of the words of an Arrow column of texts, without a Python string for each text."""
    _, offsets, characters = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if characters is None or not len(column):
        return WordKeys(np.zeros(0, dtype=np.uint64), np.zeros(len(column) + 1, dtype=np.int64))
    # Kernels reject read-only memory, hence the copy.
    return _scan(np.frombuffer(characters, dtype=np.uint8)[ends[0] : ends[-1]].copy(), ends - ends[0])


def example_texts(examples: Iterable[Example]) -> list[str]:
    """Return the texts of examples; a pair counts as two texts."""
    pairs = ((example.text, example.text_pair) for example in examples)
    return [text for pair in pairs for text in pair if text]


def example_keys(examples: Iterable[Example]) -> WordKeys:
    """Return the keys of the words of the examples' texts."""
    return word_keys(example_texts(examples))


def ngrams(words: WordKeys, buckets: int = BUCKETS) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bucket of every word and of every pair of neighboring words, and the index of the text of each."""
    keys, owners = words.keys, words.owners()
    same_text = owners[1:] == owners[:-1]
    pairs = keys[:-1][same_text] * _SPREAD + keys[1:][same_text]
    hashes = np.concatenate([keys, pairs]) * _SPREAD
    # The bucket is the high half of a product of 32-bit numbers.
    bucket = ((hashes >> _HALF) * np.uint64(buckets) >> _HALF).astype(np.int64)
    return bucket, np.concatenate([owners, owners[1:][same_text]])


def bucket_counts(words: WordKeys) -> Counts:
    """Return the count of each bucket."""
    return np.bincount(ngrams(words)[0], minlength=BUCKETS)


def text_sums(words: WordKeys, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the weights of each text's n-grams; other texts do not change its rounding."""
    buckets, owners = ngrams(words)
    sums: NDArray[np.float64] = np.bincount(owners, weights=weights[buckets], minlength=len(words)).astype(np.float64)
    return sums


def table_counts(table: Path, what: str) -> Counts:
    """Return the bucket counts over all texts of a selection table; the progress bar shows `what`."""
    counts = np.zeros(BUCKETS, dtype=np.int64)
    with bar(f"counting word pairs of {what}", table_rows(table)) as advance:
        for batch in read_batches(table, columns=["text"]):
            counts += bucket_counts(column_keys(batch.column(0)))
            advance(len(batch))
    return counts


def table_sums(table: Path, weights: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """Return `text_sums` of all texts of a selection table."""
    sums = [np.zeros(0)]
    with bar(f"scoring {what}", table_rows(table)) as advance:
        for batch in read_batches(table, columns=["text"]):
            sums.append(text_sums(column_keys(batch.column(0)), weights))
            advance(len(batch))
    return np.concatenate(sums)


def _scan(buffer: NDArray[np.uint8], offsets: NDArray[np.int64]) -> WordKeys:
    keys = np.empty(len(buffer) // 2 + len(offsets), dtype=np.uint64)  # a word takes a byte and a gap
    ends = np.zeros(len(offsets), dtype=np.int64)
    used = _key_words(buffer, offsets, character_classes(), lower_cases(), ascii_folds(), keys, ends)
    return WordKeys(keys[:used], ends)


@compiled("int64(uint8[::1], int64[::1], uint8[::1], uint32[::1], uint8[::1], uint64[::1], int64[::1])")
def _key_words(buffer, offsets, classes, lower, folds, keys, ends):  # type: ignore[no-untyped-def]
    """Write the key of every word, and after each text the number of words so far."""
    used = 0
    for text in range(offsets.size - 1):
        position, stop = offsets[text], offsets[text + 1]
        while position < stop:
            start = position
            value = _START
            while position < stop and buffer[position] < 128 and folds[buffer[position]] != 0:
                value = (value ^ np.uint64(folds[buffer[position]])) * _FACTOR
                position += 1
            if position < stop and buffer[position] >= 128:
                position, value, _ = rest_of_word(buffer, start, position, stop, value, _START, classes, lower)
            if position == start:
                position += code_point(buffer, position)[1]
            else:
                keys[used] = value
                used += 1
        ends[text + 1] = used
    return used
