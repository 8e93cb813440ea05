"""The Unigram trainer against slow, obvious computations of the same numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from endtask.tokenization import unigram_trainer as unigram_pieces
from endtask.tokenization.unigram_trainer import LONGEST_SUBWORD, LONGEST_WORD, learn_subwords

WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 20), min_size=1, max_size=12)


def ways_to_cut(word: str, pieces: set[str]) -> Iterator[list[str]]:
    """Every way to spell a word by pieces."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            for rest in ways_to_cut(word[end:], pieces):
                yield [word[:end], *rest]


def start(words: dict[str, int]) -> tuple[unigram_pieces._Words, unigram_pieces._Subwords, list[str]]:
    """The first candidates, and how they are spelled."""
    alphabet = sorted(set("".join(words)))
    laid_out = unigram_pieces._to_arrays(words, alphabet)
    pieces = unigram_pieces._candidates(laid_out, len(alphabet))
    ends = pieces.starts + pieces.lengths
    strings = [laid_out.text[first:last] for first, last in zip(pieces.starts, ends, strict=True)]
    return laid_out, pieces, [*alphabet, *strings[len(alphabet) :]]


@given(words=WORDS)
def test_candidates_are_the_repeated_substrings_that_no_longer_one_stands_for(words: dict[str, int]) -> None:
    counts: Counter[str] = Counter()
    followers: dict[str, list[str]] = {}
    for word, count in words.items():
        for first in range(len(word)):
            for last in range(first + 2, min(len(word), first + LONGEST_SUBWORD) + 1):
                counts[word[first:last]] += count
                followers.setdefault(word[first:last], []).append(word[last : last + 1])
    # The empty follower is a word's end, which nothing longer stands for.
    expected = {
        piece: count
        for piece, count in counts.items()
        if count >= 2 and (len(set(followers[piece])) > 1 or "" in followers[piece])
    }
    _, pieces, strings = start(words)
    letters = len(set("".join(words)))
    uses = (pieces.counts / pieces.lengths)[letters:].tolist()
    assert dict(zip(strings[letters:], uses, strict=True)) == expected


@given(words=WORDS)
def test_expected_counts_are_those_over_all_ways_to_cut(words: dict[str, int]) -> None:
    laid_out, pieces, strings = start(words)
    probability = dict(zip(strings, pieces.probabilities()[:-1].tolist(), strict=True))
    expected: Counter[str] = Counter()
    for word, count in words.items():
        ways = list(ways_to_cut(word, set(strings)))
        weights = [math.prod(probability[piece] for piece in way) for way in ways]
        for way, weight in zip(ways, weights, strict=True):
            for piece in way:
                expected[piece] += count * weight / sum(weights)
    found = unigram_pieces._expected_counts(laid_out, pieces)
    np.testing.assert_allclose(found, [expected[piece] for piece in strings], rtol=1e-9, atol=1e-12)


@given(words=WORDS)
def test_the_best_spelling_without_a_piece_is_the_best_of_all_others(words: dict[str, int]) -> None:
    _, pieces, strings = start(words)
    probabilities = pieces.probabilities()
    probability = dict(zip(strings, probabilities[:-1].tolist(), strict=True))
    found = unigram_pieces._best_alternative(pieces, probabilities)
    for piece, best in zip(strings, found, strict=True):
        if len(piece) > 1:
            others = ways_to_cut(piece, set(strings) - {piece})
            assert best == pytest.approx(max(math.prod(probability[part] for part in way) for way in others))


@given(words=WORDS, size=st.integers(1, 20))
def test_the_vocabulary_holds_all_letters_and_no_more_than_asked(words: dict[str, int], size: int) -> None:
    alphabet = sorted(set("".join(words)))
    learned = learn_subwords(words, alphabet, size)
    strings = [piece for piece, _ in learned]
    assert set(alphabet) <= set(strings)
    assert len(set(strings)) == len(strings) <= max(size, len(alphabet))
    assert [score for _, score in learned] == sorted((score for _, score in learned), reverse=True)
    assert all(any(piece in word for word in words) for piece in strings)
    assert sum(math.exp(score) for _, score in learned) == pytest.approx(1, abs=1e-4)


@given(words=WORDS)
def test_the_order_of_the_words_does_not_matter(words: dict[str, int]) -> None:
    alphabet = sorted(set("".join(words)))
    backwards = dict(reversed(words.items()))
    assert learn_subwords(words, alphabet, 8) == learn_subwords(backwards, alphabet, 8)


def test_frequent_words_become_pieces_and_the_library_cuts_by_them() -> None:
    words = {"▁aspirin": 500, "▁aspirins": 40, "▁pain": 300, "▁painful": 30, "▁in": 900, "▁spin": 20}
    learned = learn_subwords(words, sorted(set("".join(words))), 24)
    tokenizer = Tokenizer(models.Unigram([("[UNK]", -1000.0), *learned], 0, byte_fallback=False))
    assert tokenizer.encode("▁aspirin").tokens == ["▁aspirin"]
    assert tokenizer.encode("▁pain").tokens == ["▁pain"]
    assert tokenizer.encode("▁in").tokens == ["▁in"]


def test_characters_outside_the_alphabet_part_a_word() -> None:
    learned = dict(learn_subwords({"abxab": 10, "x": 3}, ["a", "b"], 3))
    assert set(learned) == {"a", "b", "ab"}


def test_a_very_long_word_is_learned_in_stretches() -> None:
    learned = dict(learn_subwords({"ab" * 5000: 1, "é" * (LONGEST_WORD + 1): 3}, ["a", "b", "é"], 10))
    assert "abab" in "".join(learned)
    assert all(math.isfinite(score) for score in learned.values())
    assert max(map(len, learned)) <= LONGEST_SUBWORD


def test_numbers_stay_finite_where_letters_are_rare_and_counts_huge() -> None:
    rare = "".join(chr(0x4E00 + number) for number in range(LONGEST_WORD))
    learned = dict(learn_subwords({"the": 10**11, rare: 1}, sorted(set("the" + rare)), 100))
    assert all(math.isfinite(score) for score in learned.values())
    assert learned["the"] == pytest.approx(0, abs=0.1)


def test_nothing_but_letters_is_no_error() -> None:
    assert {piece for piece, _ in learn_subwords({"a": 1, "b": 2}, ["a", "b"], 9)} == {"a", "b"}


def test_of_too_many_words_the_most_frequent_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigram_pieces, "_MOST_CHARACTERS", 6)
    learned = dict(learn_subwords({"cde": 2, "abc": 9, "bcd": 5}, list("abcde"), 20))
    assert "abc" in learned
    assert "cde" not in learned
