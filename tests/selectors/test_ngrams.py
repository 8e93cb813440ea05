"""Hashed n-grams against words split and hashed in Python."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as arrow
from hypothesis import given
from hypothesis import strategies as st

from endtask.io.run_layout import RETRIEVED
from endtask.retrieval.words import word_hash, words_of
from endtask.selectors.hashing import (
    BUCKETS,
    bucket_counts,
    column_keys,
    example_keys,
    table_counts,
    table_sums,
    text_sums,
    word_keys,
)
from tests.selectors.texts import EXAMPLES, TEXTS, retrieve_texts

SPREAD = 0x9E3779B97F4A7C15
ANY_TEXTS = st.one_of(TEXTS, st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=9))


def bucket(key: int) -> int:
    return ((key * SPREAD % (1 << 64)) >> 32) * BUCKETS >> 32


def counted_slowly(text: str) -> dict[int, int]:
    """Each bucket that the text hits, and how often, by way of Python strings."""
    hashes = [word_hash(word) for word in words_of(text)]
    pairs = [(first * SPREAD + second) % (1 << 64) for first, second in pairwise(hashes)]
    hits = [bucket(key) for key in (*hashes, *pairs)]
    return {hit: hits.count(hit) for hit in hits}


@given(ANY_TEXTS)
def test_keys_are_those_of_the_words(texts: list[str]) -> None:
    words = word_keys(texts)
    assert len(words) == len(texts)
    found = [words.keys[start:end].tolist() for start, end in pairwise(words.offsets)]
    assert found == [[word_hash(word) for word in words_of(text)] for text in texts]


@given(ANY_TEXTS, st.integers(0, 3))
def test_an_arrow_column_gives_the_same_keys(texts: list[str], start: int) -> None:
    column = column_keys(arrow.array(texts, arrow.string())[start:])
    words = word_keys(texts[start:])
    assert (column.keys.tolist(), column.offsets.tolist()) == (words.keys.tolist(), words.offsets.tolist())


@given(ANY_TEXTS)
def test_counts_and_sums_against_a_slow_count(texts: list[str]) -> None:
    slow = [counted_slowly(text) for text in texts]
    expected = np.zeros(BUCKETS, dtype=np.int64)
    for hits in slow:
        for place, count in hits.items():
            expected[place] += count
    words = word_keys(texts)
    assert np.array_equal(bucket_counts(words), expected)
    weights = np.sin(np.arange(BUCKETS))
    sums = [sum(weights[place] * count for place, count in hits.items()) for hits in slow]
    assert np.allclose(text_sums(words, weights), sums, atol=1e-12)


def test_a_table_is_read_through(tmp_path: Path) -> None:
    texts = ["gene cell gene", "", "goal"] * 20
    table = retrieve_texts(tmp_path, texts) / RETRIEVED
    assert np.array_equal(table_counts(table, "texts"), bucket_counts(word_keys(texts)))
    weights = np.cos(np.arange(BUCKETS))
    assert table_sums(table, weights, "texts").tolist() == text_sums(word_keys(texts), weights).tolist()


def test_both_texts_of_a_pair_count_on_their_own() -> None:
    assert len(example_keys(EXAMPLES)) == 4
    apart = word_keys([text for row in EXAMPLES for text in (row.text, row.text_pair) if text])
    assert example_keys(EXAMPLES).keys.tolist() == apart.keys.tolist()


def test_buckets_are_hit_evenly() -> None:
    counts = bucket_counts(word_keys([f"word{number}" for number in range(200_000)]))
    assert counts.max() < 60  # 20 on average
    assert counts.min() > 0
