"""The texts that vocabularies are trained on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.tokenization.vocabulary import ALPHABET_LIMIT, VocabularySample, count_words, find_alphabet

TEXTS = st.lists(st.text("ab [", max_size=10), max_size=20)


@given(texts=TEXTS, limit=st.none() | st.integers(1, 25), seed=st.integers(0, 5))
def test_a_sample_keeps_the_order_and_can_be_read_again(texts: list[str], limit: int | None, seed: int) -> None:
    numbered = [f"{number} {text}" for number, text in enumerate(texts)]
    sample = VocabularySample(numbered, limit=limit, seed=seed)
    drawn = list(sample)
    assert len(drawn) == (len(texts) if limit is None else min(limit, len(texts)))
    assert drawn == sorted(drawn, key=numbered.index)
    assert len(set(drawn)) == len(drawn)
    assert list(sample) == drawn == list(VocabularySample(numbered, limit=limit, seed=seed))


def test_every_text_may_be_drawn() -> None:
    texts = [str(number) for number in range(10)]
    seen = {text for seed in range(40) for text in VocabularySample(texts, limit=2, seed=seed)}
    assert seen == set(texts)


@given(texts=TEXTS)
def test_only_markers_are_cut_out(texts: list[str]) -> None:
    pieces = list(VocabularySample(texts, markers=["[", "[["]))
    assert "".join(pieces) == "".join(texts).replace("[", "")
    assert all(pieces)


def test_the_longest_marker_is_cut_out_first() -> None:
    assert list(VocabularySample(["a[[[b"], markers=["[[", "[[["])) == ["a", "b"]


def test_an_iterator_is_refused() -> None:
    with pytest.raises(TypeError, match="give a list"):
        VocabularySample(iter(["a"]))


def test_words_are_counted_by_what_they_become() -> None:
    counts = count_words(["Ab-c ab", "AB"], lambda word: word.lower().split("-"))
    assert counts == {"ab": 3, "c": 1}


def test_rare_characters_beyond_the_limit_are_left_out() -> None:
    characters = [chr(0x4E00 + number) for number in range(ALPHABET_LIMIT + 5)]
    counts = dict.fromkeys(characters, 2)
    counts[characters[3]] = 1
    alphabet = find_alphabet(counts)
    assert len(alphabet) == ALPHABET_LIMIT
    assert characters[3] not in alphabet
    # Of equally rare ones the first in the order of code points stay.
    assert alphabet == [character for character in characters if character != characters[3]][:ALPHABET_LIMIT]
