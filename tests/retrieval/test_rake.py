"""RAKE against the worked example of its paper and against a slow version of its rules."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.retrieval.queries import english_stop_words, find_candidates, key_phrases, rank_candidates
from endtask.retrieval.words import words_of

# The candidates that Rose et al. (2010) list for their example, and the scores they print.
PUBLISHED_CANDIDATES = (
    "compatibility; systems; linear constraints; set; natural numbers; criteria; compatibility; system; "
    "linear diophantine equations; strict inequations; nonstrict inequations; upper bounds; components; minimal set; "
    "solutions; algorithms; minimal generating sets; solutions; systems; criteria; corresponding algorithms; "
    "constructing; minimal supporting set; solving; systems; systems"
)
PUBLISHED_SCORES = {
    "minimal generating sets": 8.7,
    "linear diophantine equations": 8.5,
    "minimal supporting set": 7.7,
    "minimal set": 4.7,
    "linear constraints": 4.5,
    "natural numbers": 4.0,
    "strict inequations": 4.0,
    "nonstrict inequations": 4.0,
    "upper bounds": 4.0,
    "corresponding algorithms": 3.5,
    "set": 2.0,
    "algorithms": 1.5,
    "compatibility": 1.0,
    "systems": 1.0,
    "criteria": 1.0,
    "system": 1.0,
    "components": 1.0,
    "constructing": 1.0,
    "solving": 1.0,
}


def phrases(text: str) -> list[str]:
    return [" ".join(words) for words in find_candidates(text, english_stop_words())[0]]


def test_the_published_example_has_the_published_scores() -> None:
    candidates = [tuple(phrase.split()) for phrase in PUBLISHED_CANDIDATES.split("; ")]
    ranked = {" ".join(words): round(score, 1) for words, score in rank_candidates(candidates)}
    assert ranked == PUBLISHED_SCORES | {"solutions": 1.0}


def test_the_published_example_has_the_published_keywords() -> None:
    found = key_phrases(PUBLISHED_CANDIDATES, stop_words=frozenset())
    assert [phrase for phrase, _ in found] == list(PUBLISHED_SCORES)[:9]


def test_the_title_of_the_published_example_is_cut_as_published() -> None:
    title = "Compatibility of systems of linear constraints over the set of natural numbers."
    assert phrases(title) == PUBLISHED_CANDIDATES.split("; ")[:5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blood pressure, heart rate", ["blood pressure", "heart rate"]),
        ("X-ray diffraction - powder (fine)", ["x-ray diffraction", "powder", "fine"]),
        ("The dog's tail and the dog’s ear", ["dog tail", "dog ear"]),
        ("It's late; they don’t sleep, we'll wait", ["late", "sleep", "wait"]),
        (
            "a line\nend and a blank\n\nline, \r\nor a Windows\r\nline\r\n\r\nend",
            "line end|blank|line|windows line|end",
        ),
        ("type 2 diabetes in 2004", ["type 2 diabetes", "2004"]),
        ("snake_case word", ["snake", "case word"]),
        ("Größe der Straße", ["größe der straße"]),
        ("हिन्दी भाषा। 東京都", ["हिन्दी भाषा", "東京都"]),
        ("ΟΔΟΣ of the ΟΔΟΣ.", ["οδοσ", "οδοσ"]),
        ("of the and", []),
        ("?!", []),
        ("", []),
    ],
)
def test_where_phrases_end(text: str, expected: list[str] | str) -> None:
    assert phrases(text) == (expected.split("|") if isinstance(expected, str) else expected)


def test_a_pair_that_adjoins_twice_is_a_phrase_with_its_stop_words() -> None:
    text = "The axis of evil was named. Some saw an axis of evil, others an axis to evil."
    assert key_phrases(text, count=3) == [("axis of evil", 2.0), ("axis", 1.0), ("evil", 1.0)]
    assert ("axis of evil", 2.0) not in key_phrases("One axis of evil. One axis. Of evil.", count=10)


def test_of_equals_the_one_met_first_comes_first() -> None:
    assert [phrase for phrase, _ in key_phrases("zebra, apple, mango, zebra", count=10)] == ["zebra", "apple", "mango"]
    # 7/3 + 8/3 + 1/7 and the like: the same summands in another order.
    turned = [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a"), ("a", "x"), ("b", "x", "y", "z"), ("c",)]
    assert [words for words, _ in rank_candidates(turned)][:4] == [("b", "x", "y", "z"), *turned[:3]]


def test_stop_words_can_be_replaced() -> None:
    assert key_phrases("der Hund und die Katze", stop_words={"der", "und", "die"}, count=5) == [
        ("hund", 1.0),
        ("katze", 1.0),
    ]


def test_a_very_long_text_is_no_trouble() -> None:
    text = " ".join(f"word{number % 977}" + (" of" if number % 7 == 0 else "") for number in range(10_000))
    assert len(key_phrases(text, count=64)) == 64
    assert len(key_phrases("word " * 10_000)) == 0  # a third of one word is none
    assert key_phrases("word " * 10_000, count=1)[0][1] == 10_000.0**2


def test_stop_words_are_lower_case_words_that_the_tokenizer_can_meet() -> None:
    assert all(word == word.lower() and "'" not in word for word in english_stop_words())
    assert {"the", "of", "and", "is", "not", "do"} <= english_stop_words()


def slow_ranking(text: str) -> list[tuple[str, Fraction]]:
    """The rules one by one, for texts of "a".."e", the stop words "of" and "the", and full stops."""
    candidates: list[tuple[str, ...]] = []
    pairs: list[tuple[str, ...]] = []
    for sentence in text.split("."):
        places = [place for place, word in enumerate(sentence.split()) if word not in english_stop_words()]
        words = sentence.split()
        starts = [place for place in places if place - 1 not in places]
        ends = [place for place in places if place + 1 not in places]
        candidates += [tuple(words[start : end + 1]) for start, end in zip(starts, ends, strict=True)]
        spans = list(zip(starts, ends, strict=True))
        pairs += [tuple(words[first[0] : second[1] + 1]) for first, second in pairwise(spans)]
    together = [(one, other) for phrase in candidates for one in phrase for other in phrase]
    frequency = [word for phrase in candidates for word in phrase]
    score = {word: Fraction(sum(one == word for one, _ in together), frequency.count(word)) for word in set(frequency)}
    linked = [pair for pair in pairs if pairs.count(pair) > 1]
    found = list(dict.fromkeys([*candidates, *linked]))
    scored = [
        (" ".join(phrase), sum((score.get(word, Fraction(0)) for word in phrase), Fraction(0))) for phrase in found
    ]
    return sorted(scored, key=lambda item: -item[1])


@given(st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "elk", "of", "the", "."]), max_size=40))
def test_rankings_equal_a_slow_reading_of_the_rules(words: list[str]) -> None:
    text = " ".join(words)
    expected = slow_ranking(text)
    found = key_phrases(text, count=len(text))
    assert [phrase for phrase, _ in found] == [phrase for phrase, _ in expected]
    assert [score for _, score in found] == pytest.approx([float(score) for _, score in expected])
    distinct = len(set(words) - {"of", "the", "."})
    assert len(key_phrases(text)) == min(round(distinct / 3), len(expected))


@given(st.text(max_size=60))
def test_phrases_are_made_of_the_words_that_retrieval_sees(text: str) -> None:
    asked = {word for phrase in phrases(text) for word in words_of(phrase)}
    assert asked <= set(words_of(text))
