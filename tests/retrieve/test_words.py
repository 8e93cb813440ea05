"""Words are runs of letters and digits, and streams of them keep every document apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.retrieve.words import Vocabulary, number_words, words_of

TEXTS = st.text(alphabet=st.sampled_from("aAbB1_ -.É\u0301ß日本ءΣσ\n"), max_size=30)


def slow_words(text: str) -> list[str]:
    """Character by character: alphanumeric or not."""
    words, word = [], ""
    for character in [*text.lower(), " "]:
        if character.isalnum():
            word += character
        elif word:
            words.append(word)
            word = ""
    return words


@given(st.text(max_size=60) | TEXTS)
@settings(max_examples=200, deadline=None)
def test_words_are_runs_of_alphanumeric_characters(text: str) -> None:
    assert words_of(text) == slow_words(text)


@given(st.text(max_size=60) | TEXTS)
@settings(max_examples=200, deadline=None)
def test_words_of_words_are_the_same(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("-- __ ...", []),
        ("snake_case isn't", ["snake", "case", "isn", "t"]),
        ("X-ray (Zürich) ÉTÉ", ["x", "ray", "zürich", "été"]),
        ("日本語のテキスト。二つ目", ["日本語のテキスト", "二つ目"]),
        ("Москва 2024 ٣", ["москва", "2024", "٣"]),
    ],
)
def test_words_in_several_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.lists(TEXTS, max_size=8), TEXTS)
@settings(max_examples=100, deadline=None)
def test_numbers_stand_for_words(texts: list[str], other: str) -> None:
    vocabulary = Vocabulary()
    stream = number_words(texts, vocabulary)
    order = list(dict.fromkeys(word for text in texts for word in words_of(text)))
    assert len(vocabulary) == len(order)
    assert len(stream) == len(texts)
    for position, text in enumerate(texts):
        assert [order[number] for number in stream.document(position)] == words_of(text)
    numbers = [order.index(word) if word in order else -1 for word in words_of(other)]
    assert vocabulary.numbers(other).tolist() == numbers
    assert vocabulary.known(other).tolist() == [number for number in numbers if number >= 0]
    assert len(vocabulary) == len(order), "asking for words must not add them"


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=8))
@settings(max_examples=100, deadline=None)
def test_take_keeps_the_marked_documents_whole(entries: list[tuple[str, bool]]) -> None:
    stream = number_words([text for text, _ in entries], Vocabulary())
    kept = np.asarray([keep for _, keep in entries], dtype=bool)
    taken = stream.take(kept)
    expected = [stream.document(position).tolist() for position in np.flatnonzero(kept)]
    assert [taken.document(position).tolist() for position in range(len(taken))] == expected
    assert taken.offsets[-1] == len(taken.ids)
