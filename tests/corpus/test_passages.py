"""Passages: the split loses no text, respects the limit and prefers natural ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.corpus import cut
from endtask.corpus.passages import number_passages

prose = st.lists(
    st.sampled_from(
        ["word", "a", ".", "! ", "? ", ". ", ".\n", "\n\n", "\n", "Dr. ", "。", '." ', "é", "  ", "\u2003"]
    ),
    max_size=200,
).map("".join)


def without_blanks(text: str) -> str:
    return "".join(text.split())


@given(text=prose | st.text(max_size=300), limit=st.integers(1, 120))
def test_no_text_is_lost_and_no_passage_is_too_long(text: str, limit: int) -> None:
    passages = cut(text, limit)
    assert all(0 < len(passage) <= limit for passage in passages)
    assert all(passage == passage.strip() for passage in passages)
    assert without_blanks("".join(passages)) == without_blanks(text)


@given(text=prose, limit=st.integers(4, 120))
def test_words_stay_whole_where_they_fit(text: str, limit: int) -> None:
    words = text.split()
    kept = [word for passage in cut(text, limit) for word in passage.split()]
    if all(len(word) <= limit // 4 for word in words) and "。" not in text:
        assert kept == words


@given(text=st.text(max_size=80))
def test_a_short_text_stays_whole(text: str) -> None:
    assert cut(text, 80) == ([text.strip()] if text.strip() else [])


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=400), limit=st.integers(100, 300))
def test_no_tiny_rest(lengths: list[int], limit: int) -> None:
    text = " ".join("x" * length for length in lengths)
    passages = cut(text, limit)
    if len(passages) > 1:
        assert min(map(len, passages)) >= limit // 4 - 1


def test_paragraph_ends_are_preferred() -> None:
    text = "One. Two. Three four.\n\nFive. Six. Seven. Eight."
    assert cut(text, 30) == ["One. Two. Three four.", "Five. Six. Seven. Eight."]


def test_sentence_ends_are_preferred_to_words() -> None:
    text = "This one is rather long and goes on. Short. And this is the last of them all."
    assert cut(text, 60) == [
        "This one is rather long and goes on.",
        "Short. And this is the last of them all.",
    ]


@pytest.mark.parametrize("name", ["Dr.", "et al.", "e.g.", "J.", "Fig."])
def test_abbreviations_do_not_end_a_sentence(name: str) -> None:
    text = f"It was shown in {name} Smith of old. Then came other ones."
    assert cut(text, 40) == [f"It was shown in {name} Smith of old.", "Then came other ones."]


def test_lower_case_does_not_begin_a_sentence() -> None:
    assert cut("We use approx. ten things. They are good for us.", 30) == [
        "We use approx. ten things.",
        "They are good for us.",
    ]


def test_a_run_without_blanks_is_cut_evenly() -> None:
    assert cut("x" * 25, 10) == ["x" * 9, "x" * 8, "x" * 8]


def test_a_long_text_takes_linear_time() -> None:
    text = "A sentence of some words. " * 40_000
    passages = cut(text, 2000)
    assert 520 <= len(passages) <= 620
    assert all(passage.endswith(".") for passage in passages)


def test_numbers_only_where_there_are_several() -> None:
    assert list(number_passages("a", iter([]))) == []
    assert list(number_passages("a", iter(["x"]))) == [("a", "x")]
    ids = [passage_id for passage_id, _ in number_passages("a", iter("xyz"))]
    assert ids == ["a#p1", "a#p2", "a#p3"]
