"""The one-line error of a user."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.errors import InputError, did_you_mean, nearest


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ({}, "is wrong"),
        ({"path": "a.csv"}, "a.csv: is wrong"),
        ({"path": Path("folder") / "a.csv", "row": 7}, f"{Path('folder') / 'a.csv'}, row 7: is wrong"),
        ({"row": 0}, "row 0: is wrong"),
        ({"key": "pretrain.seed"}, "key 'pretrain.seed': is wrong"),
        ({"hint": "try this"}, "is wrong (try this)"),
        (
            {"path": "a.csv", "row": 2, "key": "label", "hint": "try this"},
            "a.csv, row 2, key 'label': is wrong (try this)",
        ),
    ],
)
def test_the_line_names_every_given_part_of_the_place(place: dict[str, object], line: str) -> None:
    assert str(InputError("is wrong", **place)) == line  # type: ignore[arg-type]


def test_the_parts_stay_readable_for_programs() -> None:
    error = InputError("is wrong", path="a.csv", row=2, key="label", hint="try this")
    assert (error.path, error.row, error.key, error.hint) == ("a.csv", 2, "label", "try this")


def test_nearest_finds_a_typing_slip_and_refuses_a_stranger() -> None:
    names = ["learning_rate", "batch_size", "seed"]
    assert nearest("lerning_rate", names) == "learning_rate"
    assert nearest("quux", names) is None
    assert nearest("seed", []) is None


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, unique=True), st.data())
def test_nearest_of_a_right_word_is_the_word_itself(words: list[str], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(words))
    assert nearest(word, words) == word


def test_the_hint_is_one_word_or_all_of_them() -> None:
    assert did_you_mean("latop", ["laptop", "gpu"]) == "did you mean 'laptop'?"
    assert did_you_mean("cluster", ["laptop", "gpu"]) == "known: gpu, laptop"


@pytest.mark.parametrize(
    ("word", "choices", "hint"),
    [
        ("craft", ["craft_pmc_fulltext", "wikipedia"], "did you mean 'craft_pmc_fulltext'?"),
        ("PMC", ["craft_pmc_fulltext", "wikipedia"], "did you mean 'craft_pmc_fulltext'?"),
        ("wiki", ["wiki_of_physics", "old_wiki_of_physics"], "did you mean 'wiki_of_physics'?"),
        ("wiki", ["wiki_of_physics", "wiki_of_cooking"], "known: wiki_of_cooking, wiki_of_physics"),
        ("pmc", ["craft_pmc_fulltext", "more_pmc_fulltext"], "known: craft_pmc_fulltext, more_pmc_fulltext"),
        ("cr", ["craft_pmc_fulltext", "wikipedia"], "known: craft_pmc_fulltext, wikipedia"),
    ],
    ids=["begins", "holds", "begins before holds", "two begin", "two hold", "too short"],
)
def test_the_only_name_that_holds_the_word_is_meant(word: str, choices: list[str], hint: str) -> None:
    assert did_you_mean(word, choices) == hint
