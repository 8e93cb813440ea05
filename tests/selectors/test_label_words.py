"""Label words against counts row by row."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from endtask.records import Example
from endtask.retrieval.words import words_of
from endtask.selectors.quality import LEAST_ROWS, MOST_WORDS, label_words

ROWS = st.lists(
    st.tuples(st.lists(st.sampled_from(["gene", "cell", "goal", "the", "Soup"]), max_size=4), st.sampled_from("ab")),
    min_size=1,
    max_size=60,
)


def told_slowly(rows: list[Example], label: str) -> list[str]:
    holding = {word: [row for row in rows if word in words_of(row.text)] for row in rows for word in words_of(row.text)}
    share = Fraction(sum(row.label == label for row in rows), len(rows))
    telling = []
    for word, found in holding.items():
        inside = sum(row.label == label for row in found)
        ratio = Fraction(inside, len(found)) / share
        if inside >= LEAST_ROWS and ratio > 1 and ratio**2 >= 1 / share:
            telling.append((-ratio, -inside, word))
    return [word for *_, word in sorted(telling)]


@given(ROWS)
def test_against_a_slow_count(rows: list[tuple[list[str], str]]) -> None:
    examples = [Example(f"train-{number}", " ".join(words), label) for number, (words, label) in enumerate(rows)]
    found = label_words(examples)
    assert found.keys() == {label for _, label in rows}
    assert {label: list(words) for label, words in found.items()} == {
        label: told_slowly(examples, label)[:MOST_WORDS] for label in found
    }


def test_both_texts_of_a_pair_tell() -> None:
    rows = [Example("1", "gene", "yes", "cell"), Example("2", "soup", "no", "bread")] * 5
    assert label_words(rows) == {"yes": ("cell", "gene"), "no": ("bread", "soup")}


def test_words_of_all_classes_tell_none() -> None:
    rows = [Example("1", "the gene", "a"), Example("2", "the goal", "b"), Example("3", "the soup", "c")] * 9
    often = [Example("4", "often gene", "a"), Example("5", "often", "a"), Example("6", "often", "b")] * 9
    assert label_words([*rows, *often]) == {"a": ("gene",), "b": ("goal",), "c": ("soup",)}


def test_no_more_words_than_asked_and_rare_ones_not_at_all() -> None:
    text = " ".join(f"word{number}" for number in range(80))
    rows = [Example("1", text, "a"), Example("2", "other", "b")]
    assert label_words(rows * (LEAST_ROWS - 1)) == {"a": (), "b": ()}
    assert len(label_words(rows * LEAST_ROWS)["a"]) == MOST_WORDS


def test_scores_are_no_classes() -> None:
    assert label_words([Example("1", "gene", 0.5)] * 9) == {}
