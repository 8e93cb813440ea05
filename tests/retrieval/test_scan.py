"""The scan kernel against words split and counted in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus.corpus import key_of_words
from endtask.errors import InputError
from endtask.retrieval.bm25 import scan
from endtask.retrieval.bm25.scan import FULL_COUNT, Scanned, Scanner, Terms, string_keys
from endtask.retrieval.contamination import ContaminationFilter
from endtask.retrieval.words import word_hash, words_of

ODD = "aAbB1 _-.!\nÉé\u0301\u0307İIiΣσςKk日本の〇ßẞ😀𠀀𐐀\u3000\u0085\u00a0"
TEXTS = st.text(max_size=40) | st.text(alphabet=st.sampled_from(ODD), max_size=40)
NOTHING = ContaminationFilter.of([]).table
SPREAD = 0x9E3779B97F4A7C15


def scanner_for(words: list[str]) -> Scanner:
    return Scanner(Terms(words), NOTHING)


def counted(scanned: Scanned, words: list[str]) -> list[dict[str, int]]:
    """Each passage's counts, by word in the order written."""
    found = []
    at = 0
    for size in scanned.pair_counts.tolist():
        counts: dict[str, int] = {}
        for pair in scanned.pairs[at : at + size].tolist():
            word = words[pair >> 8]
            counts[word] = counts.get(word, 0) + (pair & 255)
        found.append(counts)
        at += size
    assert at == len(scanned.pairs)
    return found


@given(st.lists(TEXTS, max_size=6), st.integers(0, 3))
def test_counts_and_lengths_are_those_of_words_of(texts: list[str], unknown: int) -> None:
    words = sorted({word for text in texts for word in words_of(text)} | {"other", "日"})[unknown:]
    scanner = scanner_for(words)
    scanned = scanner.scan(texts)
    expected = [Counter(word for word in words_of(text) if word in words) for text in texts]
    assert counted(scanned, words) == expected
    assert [list(counts) for counts in counted(scanned, words)] == [list(counts) for counts in expected], "in order"
    assert scanned.lengths.tolist() == [len(words_of(text)) for text in texts]
    assert scanned.sizes.tolist() == [len(text.encode()) for text in texts]
    assert scanner.document_frequency.tolist() == [sum(word in counts for counts in expected) for word in words]
    assert not scanned.suspects.any()


@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS, max_size=5))
def test_blocks_do_not_touch_each_other(first: list[str], second: list[str]) -> None:
    words = sorted({word for text in first + second for word in words_of(text)})
    apart, together = scanner_for(words), scanner_for(words)
    # The pairs hold until the next call only.
    parts = [replace(part, pairs=part.pairs.copy()) for part in map(apart.scan, (first, second))]
    whole = together.scan(first + second)
    for name in ("sizes", "lengths", "pair_counts", "pairs", "text_keys", "suspects"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(whole, name), joined)
    np.testing.assert_array_equal(apart.document_frequency, together.document_frequency)


@pytest.mark.parametrize("count", [1, 254, 255, 256, 509, 510, 511, 765, 70_000])
@pytest.mark.parametrize("word", ["a", "é", "日"])
def test_counts_of_any_size_are_kept(word: str, count: int) -> None:
    words = ["0", word]
    scanner = scanner_for(words)
    scanned = scanner.scan([f"{word} " * count, f"0 {word}"])
    assert counted(scanned, words) == [{word: count}, {"0": 1, word: 1}]
    assert (scanned.pairs[: scanned.pair_counts[0]] & 255).tolist() == [FULL_COUNT] * (count // 255) + [count % 255]
    assert scanner.document_frequency.tolist() == [1, 2]


def high_bits(word: str) -> int:
    return word_hash(word) >> 24 << 24


def slot_of(terms: Terms, word: str) -> int:
    return (word_hash(word) * SPREAD % 2**64) >> terms.shift


@pytest.mark.parametrize(
    ("word", "other"),
    [("pear", "plum"), ("pear", "pea"), ("pea", "pear"), ("été", "thé"), ("été", "ét"), ("日", "本"), ("i\u0307", "i")],
)
def test_a_word_with_the_hash_of_another_is_not_taken_for_it(word: str, other: str) -> None:
    terms = Terms([other, word])
    terms.slots[:] = 0
    # The other word stands first in the chain and pretends to have this one's hash.
    first, size = slot_of(terms, word), len(terms.slots)
    for step, number in enumerate([1, 2]):
        terms.slots[(first + step) % size] = high_bits(word) | number
    scanned = Scanner(terms, NOTHING).scan([f"{word} {word.upper()}"])
    assert counted(scanned, [other, word]) == [{word: 2}]
    terms.slots[(first + 1) % size] = 0
    assert counted(Scanner(terms, NOTHING).scan([word]), [other, word]) == [{}]


@given(st.sets(TEXTS.flatmap(lambda text: st.sampled_from(words_of(text) or ["x"])), max_size=30))
def test_the_table_holds_the_hash_of_every_word(words: set[str]) -> None:
    terms = Terms(sorted(words))
    expected = {high_bits(word) | number for number, word in enumerate(sorted(words), start=1)}
    assert set(terms.slots[terms.slots != 0].tolist()) == expected
    assert len(terms) == len(words)


def test_a_table_of_many_words() -> None:
    words = [f"w{number}" for number in range(5000)]
    scanned = scanner_for(words).scan([" ".join(words[::-1]), "w4999 w5000"])
    assert counted(scanned, words) == [dict.fromkeys(words, 1), {"w4999": 1}]
    assert scanned.lengths.tolist() == [5000, 2]


def test_too_many_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_TERMS", 3)
    assert len(Terms(["a", "b"])) == 2
    with pytest.raises(InputError, match="3 different words in the queries"):
        Terms(["a", "b", "c"])


BLANKS = st.text(
    alphabet=st.sampled_from("aé日 \t\n\v\f\r\x1c\x1d\x1e\x1f\u0085\u00a0\u2003\u2028\u3000\u200b"), max_size=6
)


@given(st.lists(BLANKS | TEXTS, max_size=12))
def test_text_keys_are_equal_for_texts_that_differ_in_white_space_only(texts: list[str]) -> None:
    keys = scanner_for([]).scan(texts).text_keys.tolist()
    for one, first in zip(keys, texts, strict=True):
        for other, second in zip(keys, texts, strict=True):
            same = first.split() == second.split()
            assert (one == other) == same == (key_of_words(first) == key_of_words(second))


@given(st.lists(TEXTS, max_size=8))
def test_string_keys_are_fnv_over_bytes(texts: list[str]) -> None:
    expected = [word_hash("".join(map(chr, text.encode()))) for text in texts]
    assert string_keys(texts).tolist() == expected


def test_contaminated_texts_are_suspected() -> None:
    contamination_filter = ContaminationFilter.of(
        ["A short secret.", "one two three four five six seven eight nine ten eleven twelve thirteen"]
    )
    texts = [
        "Tell me. A SHORT secret! Now.",
        "tell me a short secret now",
        "zero, one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
        "one two three four five six seven eight nine ten eleven twelve; fourteen",
        "",
    ]
    scanned = Scanner(Terms([]), contamination_filter.table).scan(texts)
    assert scanned.suspects.tolist() == [True, False, True, False, False]
