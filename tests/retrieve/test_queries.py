"""Queries are the distinct train texts without marks, and K follows the paper's table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.records import Example
from endtask.retrieve.queries import Query, build_queries, papers_top_k
from endtask.retrieve.words import words_of


def example(name: str, text: str, pair: str | None = None) -> Example:
    return Example(name, text, "label", text_pair=pair)


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


def test_a_pair_asks_with_both_texts() -> None:
    assert build_queries([example("1", "A man.", "He sleeps.")]) == [Query("a man he sleeps", ("1",))]


def test_texts_without_words_ask_nothing() -> None:
    assert build_queries([example("1", "?!"), example("2", "[[ ]]"), example("3", "__", "--")]) == []
    assert build_queries([]) == []


@given(st.lists(st.text(alphabet="ab. ", max_size=6), max_size=12))
@settings(max_examples=50, deadline=None)
def test_every_example_with_words_asks_once(texts: list[str]) -> None:
    queries = build_queries(example(str(number), text) for number, text in enumerate(texts))
    asked = [name for query in queries for name in query.example_ids]
    assert sorted(asked) == sorted(str(number) for number, text in enumerate(texts) if words_of(text))
    assert len({query.text for query in queries}) == len(queries)


@pytest.mark.parametrize(
    ("examples", "top_k"),
    [(1, 5000), (4999, 5000), (5000, 500), (100_000, 500), (100_001, 50)],
)
def test_papers_top_k_at_the_borders(examples: int, top_k: int) -> None:
    assert papers_top_k(examples) == top_k
