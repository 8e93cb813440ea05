"""Where spans come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import AlignedSettings
from endtask.errors import InputError
from endtask.records import Document
from endtask.tokenization.span_finders import Finder, ListedWords, from_quotes, from_title_case, span_finder


def found(finder: Finder, text: str) -> list[str]:
    read, spans = finder(Document("1", text, "s"))
    return [read[start:end] for start, end in spans]


def test_title_case_takes_runs_and_leaves_out_the_first_word_of_a_sentence() -> None:
    text = "Yesterday they met Queen of Sweden. Stockholm is cold. New York is far, said Anna."
    assert found(from_title_case, text) == ["Queen of Sweden", "New York", "Anna"]


def test_quotation_marks_are_taken_out() -> None:
    read, _ = from_quotes(Document("1", 'He sang "Let it be" and “ Yesterday ”, "" too.', "s"))
    assert '"Let' not in read
    assert found(from_quotes, 'He sang "Let it be" and “ Yesterday ”.') == ["Let it be", "Yesterday"]


@given(st.lists(st.sampled_from(['"', "“", "”", "one", " ", "two.", "\n"]), max_size=25))
def test_quoted_spans_keep_their_words_and_the_text_all_that_is_no_mark(parts: list[str]) -> None:
    text = "".join(parts)
    read, spans = from_quotes(Document("1", text, "s"))
    markers = str.maketrans("", "", '"“”')
    assert read.translate(markers) == text.translate(markers)
    for start, end in spans:
        assert read[start:end] == read[start:end].strip() != ""
        assert f"{read[start:end]}" in text


def test_the_longest_listed_phrase_wins_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("blood pressure\nhigh blood pressure\n\nheart\n")
    finder = span_finder(AlignedSettings(spans_from="word_list", word_list=str(tmp_path / "list.txt")))
    assert found(finder, "High Blood Pressure and blood pressure; hearts, HEART") == [
        "High Blood Pressure",
        "blood pressure",
        "HEART",
    ]


def test_an_empty_or_missing_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\n \n")
    with pytest.raises(InputError, match="holds no words"):
        ListedWords(tmp_path / "list.txt")
    with pytest.raises(InputError, match=r"none\.txt"):
        ListedWords(tmp_path / "none.txt")


def test_a_list_is_named_exactly_where_it_is_used() -> None:
    with pytest.raises(ValueError, match="word_list"):
        AlignedSettings(spans_from="word_list")
    with pytest.raises(ValueError, match="word_list"):
        AlignedSettings(word_list="a.txt")
