"""Entity markers are detected if nearly all texts have them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import Settings, TokenizerSettings
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packing import with_detected_markers
from endtask.tokenization.special_tokens import likely_markers

WORDS = st.lists(st.sampled_from(["zinc", "binds", "the", "p53", "a<b", "[1]", "x"]), max_size=6).map(" ".join)


@given(
    st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=30),
    st.sampled_from([("[[", "]]"), ("<e1>", "</e1>")]),
)
def test_markers_in_every_text_are_found(texts: list[tuple[str, str, str]], markers: tuple[str, str]) -> None:
    start, end = markers
    marked = [f"{before} {start} {inside} {end} {after}" for before, inside, after in texts]
    assert likely_markers(marked) == markers


def test_one_text_in_twenty_may_be_cut_before_its_markers() -> None:
    texts = ["a [[ b ]]"] * 19
    assert likely_markers([*texts, "a"]) == ("[[", "]]")
    assert likely_markers([*texts, "a", "a"]) == ()


def test_markup_that_stands_everywhere_is_no_marker() -> None:
    assert likely_markers(["one [SEP] two <b>three</b>", "four [SEP] <b>five</b> six"]) == ()
    assert likely_markers(["<x1> a <x1> b <x1>", "<x1> c <x1> d <x1>"]) == ()
    assert likely_markers(["<br> a <br> b <br>", "<br> c <br> d <br>"]) == ()
    assert likely_markers([]) == ()


@pytest.mark.parametrize(
    ("markers", "expected"), [("auto", ("[[", "]]")), (("<<",), ("<<",)), ((), ())], ids=["auto", "named", "none"]
)
def test_markers_of_the_train_texts_replace_auto(markers: Any, expected: tuple[str, ...]) -> None:
    rows = [Example(f"r{n}", f"a [[ word ]] number {n}", "ab"[n % 2]) for n in range(8)]
    task = Task.from_examples("marked", {"train": rows[:6], "dev": rows[6:]}, test_fraction=0.0)
    settings = Settings(tokenizer=TokenizerSettings(entity_markers=markers))
    resolved = with_detected_markers(settings, task)
    assert resolved.tokenizer.markers == resolved.tokenizer.entity_markers == expected
    assert settings.tokenizer.entity_markers == markers
