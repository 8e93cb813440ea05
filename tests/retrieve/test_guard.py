"""The guard, against a slow reading of its rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.retrieve import guard
from endtask.retrieve.guard import RUN, guarded_positions
from endtask.retrieve.words import Vocabulary, number_words, words_of


def dropped(guarded: list[str], passages: list[str]) -> set[int]:
    """What the guard drops."""
    vocabulary = Vocabulary()
    stream = number_words(passages, vocabulary)

    def texts_at(positions: set[int]) -> Iterator[tuple[int, str]]:
        return ((position, passages[position]) for position in sorted(positions))

    return guarded_positions(guarded, stream, vocabulary, texts_at)


def holds(passage: str, guarded: str) -> bool:
    """The rule, word for word; passages of these tests end their sentences with a dot."""
    words, wanted = words_of(passage), words_of(guarded)
    if len(wanted) >= RUN:
        runs = {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}
        return any(tuple(wanted[start : start + RUN]) in runs for start in range(len(wanted) - RUN + 1))
    sentences = [words_of(sentence) for sentence in passage.split(". ")]
    ends = range(len(sentences) + 1)
    spans = (chain.from_iterable(sentences[first:last]) for first in ends for last in ends[first:])
    return bool(wanted) and wanted in map(list, spans)


def slow_dropped(guarded: list[str], passages: list[str]) -> set[int]:
    return {place for place, passage in enumerate(passages) if any(holds(passage, text) for text in guarded)}


def texts_of(words: str, shortest: int, longest: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words.split()), min_size=shortest, max_size=longest).map(" ".join)


SENTENCES = st.lists(texts_of("a b", 0, 5) | texts_of("a b", 12, 16), min_size=1, max_size=4)
PASSAGES = st.lists(SENTENCES.map(". ".join), max_size=6)


@given(st.lists(texts_of("a b x", 0, 4) | texts_of("a b b", 11, 16), max_size=4), PASSAGES)
@settings(max_examples=300, deadline=None)
def test_against_the_slow_rule(guarded: list[str], passages: list[str]) -> None:
    assert dropped(guarded, passages) == slow_dropped(guarded, passages)


@given(st.lists(texts_of("a b", 0, 16), max_size=3), PASSAGES)
@settings(max_examples=100, deadline=None)
def test_chunks_do_not_matter(guarded: list[str], passages: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_CHUNK", 7)
        assert dropped(guarded, passages) == slow_dropped(guarded, passages)


@given(st.lists(texts_of("a b", 1, 16), min_size=1, max_size=3), PASSAGES)
@settings(max_examples=100, deadline=None)
def test_hash_collisions_drop_nothing(guarded: list[str], passages: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_BASE", guard.np.uint64(0))  # the last word alone decides on the hash
        assert dropped(guarded, passages) == slow_dropped(guarded, passages)


LONG = " ".join(f"w{number}" for number in range(20))


def test_thirteen_words_in_a_row_and_not_twelve() -> None:
    words = LONG.split()
    passages = [
        f"before {' '.join(words[3:16])} after",
        f"before {' '.join(words[3:15])} after",
        " ".join([*words[3:9], "other", *words[9:16]]),
        LONG.upper().replace(" ", ", "),
    ]
    assert dropped([LONG], passages) == {0, 3}


@pytest.mark.parametrize("border", range(1, RUN))
def test_a_text_over_two_passages_is_in_neither(border: int) -> None:
    words = LONG.split()[:RUN]
    assert dropped([" ".join(words)], [" ".join(words[:border]), "", " ".join(words[border:])]) == set()
    assert dropped(["one two"], ["zero one", "two three"]) == set()


def test_a_word_the_corpus_lacks_hides_only_the_runs_that_hold_it() -> None:
    guarded = f"{LONG} unheard {LONG.replace('w', 'v')}"
    assert dropped([guarded], [LONG, "x", f"v0 w0 {LONG}"]) == {0, 2}
    assert dropped([f"unheard {' '.join(LONG.split()[:12])}"], [LONG]) == set()
    assert dropped(["unheard words"], ["words"]) == set()


@pytest.mark.parametrize(
    ("passage", "guarded"),
    [
        ("Great film.", "great film"),
        ("I saw it. Great film! I left.", "Great film."),
        ('He said: "It was fine." Great film? (Yes.) No.', "Great film"),
        ("A list\nGreat film\nof lines", "great film"),
        ("I saw it. Great film. Loved it. The end.", "Great film. Loved it."),
        ("Hello. Ask Dr. Smith about it. Bye.", "Ask Dr. Smith about it."),
        ("一つ目。二つ目。三つ目", "二つ目"),
    ],
)
def test_short_texts_as_whole_sentences(passage: str, guarded: str) -> None:
    assert dropped([guarded], ["something else", passage]) == {1}


@pytest.mark.parametrize(
    "passage",
    ["A great film it was.", "Great film, that.", "It was a great film.", "Great. Very. Film.", "Film great."],
)
def test_short_texts_inside_a_sentence_do_not_count(passage: str) -> None:
    assert dropped(["great film"], [passage]) == set()


@pytest.mark.parametrize(
    ("guarded", "passages"), [([], []), ([], ["a b"]), (["a b"], []), (["", "?!"], ["", "a"]), (["a"], ["", "..."])]
)
def test_nothing_to_guard_or_nothing_to_read(guarded: list[str], passages: list[str]) -> None:
    assert dropped(guarded, passages) == set()


def test_texts_are_fetched_only_for_passages_that_may_hold_a_short_text() -> None:
    vocabulary = Vocabulary()
    passages = ["great film", "nothing here", f"{LONG}. Great film."]
    asked: list[set[int]] = []

    def texts_at(positions: set[int]) -> Iterator[tuple[int, str]]:
        asked.append(positions)
        return ((position, passages[position]) for position in positions)

    stream = number_words(passages, vocabulary)
    assert guarded_positions(["great film", LONG, "nothing"], stream, vocabulary, texts_at) == {0, 2}
    assert asked == [{0, 1}]
