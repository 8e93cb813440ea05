"""Queries are the distinct task texts without entity markers, shortened on request; K follows the paper's table."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.records import Example, Label
from endtask.retrieval.queries import (
    LONG_TEXT,
    Query,
    QueryMode,
    build_queries,
    papers_top_k,
)
from endtask.retrieval.words import words_of

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def example(name: str, text: str, pair: str | None = None, label: Label = "") -> Example:
    return Example(name, text, label, text_pair=pair)


def long_text(words: int) -> str:
    return ". ".join(f"the word{number} of interest" for number in range(words // 4))


def test_equal_texts_are_merged_with_marks_and_case_away() -> None:
    examples = [
        example("1", "<< EGFR >> binds [[ gefitinib ]]."),
        example("2", "Another text"),
        example("3", "EGFR binds gefitinib"),
        example("4", "<e1>EGFR</e1> binds <e2>Gefitinib</e2>!"),
    ]
    assert build_queries(examples) == [
        Query("egfr binds gefitinib", ("1", "3", "4")),
        Query("another text", ("2",)),
    ]


def test_words_come_in_order_with_repeats() -> None:
    (query,) = build_queries([example("1", "To be, or not to be")])
    assert query.words == ["to", "be", "or", "not", "to", "be"]


def test_a_pair_asks_with_both_texts() -> None:
    assert build_queries([example("1", "A man.", "He sleeps.")]) == [Query("a man he sleeps", ("1",))]
    assert build_queries([example("1", "red fox", "lazy dog")], mode="rake") == [Query("red fox lazy dog", ("1",))]
    crossed = build_queries([example("1", "an old red", "fox, old dog")], mode="rake")
    assert crossed == [Query("old red old dog fox", ("1",))]  # "red fox" is no phrase of either


@pytest.mark.parametrize("mode", get_args(QueryMode))
def test_texts_without_words_ask_nothing(mode: QueryMode) -> None:
    assert build_queries([example("1", "?!"), example("2", "[[ ]]"), example("3", "__", "--")], mode=mode) == []
    assert build_queries([], mode=mode) == []


@pytest.mark.parametrize("mode", get_args(QueryMode))
@given(st.lists(st.text(alphabet="ab. ", max_size=6), max_size=12))
def test_every_example_with_words_asks_once(mode: QueryMode, texts: list[str]) -> None:
    queries = build_queries((example(str(number), text) for number, text in enumerate(texts)), mode=mode)
    asked = [name for query in queries for name in query.example_ids]
    assert sorted(asked) == sorted(str(number) for number, text in enumerate(texts) if words_of(text))
    assert len({query.text for query in queries}) == len(queries)


def test_key_phrases_ask_best_first_up_to_the_words_allowed() -> None:
    text = "Small. We measured the mean arterial pressure, and the pulse of small dogs' X-ray images."
    (query,) = build_queries([example("1", text)], mode="rake", query_words=100)
    assert query.text == "mean arterial pressure x ray images small dogs small measured pulse"
    (query,) = build_queries([example("1", text)], mode="rake", query_words=4)
    assert query.text == "mean arterial pressure x"


def test_a_text_of_stop_words_asks_with_what_it_has() -> None:
    assert build_queries([example("1", "To be, or not to be")], mode="rake", query_words=4)[0].text == "to be or not"


def test_auto_shortens_long_texts_only() -> None:
    short, long = example("short", long_text(LONG_TEXT)), example("long", long_text(2 * LONG_TEXT))
    assert build_queries([short], mode="auto") == build_queries([short], mode="full")
    assert build_queries([long], mode="auto") == build_queries([long], mode="rake")
    assert len(build_queries([long], mode="auto")[0].words) == 64
    assert "the" not in build_queries([long], mode="auto")[0].words


@pytest.mark.parametrize("mode", get_args(QueryMode))
def test_queries_of_ten_thousand_words(mode: QueryMode) -> None:
    (query,) = build_queries([example("1", long_text(10_000))], mode=mode)
    assert len(query.words) == (10_000 if mode == "full" else 64)


@pytest.mark.parametrize(
    ("examples", "top_k"),
    [(1, 5000), (4999, 5000), (5000, 500), (100_000, 500), (100_001, 50)],
)
def test_papers_top_k_at_the_borders(examples: int, top_k: int) -> None:
    assert papers_top_k(examples) == top_k
    assert papers_top_k(examples, "auto_large") == 2 * top_k
