"""Entity markers and normalised texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.records import Example
from endtask.task import normalize, remove_entity_markers
from endtask.task.text_keys import exact_key, normalized_key


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("[[ a b ]] and << c >>", "a b and c"),
        ("<< [[ a ]] b >> c", "a b c"),
        ("[[ << a ]] b >>", "a b"),
        ("[unused1] a [unused2] b", "a b"),
        ("<e1>a</e1> hits <e2> b </e2>", "a hits b"),
        ("@@ a ## b", "a b"),
        ("cout << x", "cout << x"),
        ("walk ##ing", "walk ##ing"),
        ("a[0]", "a[0]"),
        ("<e1>a</e2>", "<e1>a</e2>"),
    ],
)
def test_marks_are_removed_in_pairs_only(marked: str, plain: str) -> None:
    assert remove_entity_markers(marked) == plain


def test_normalize_folds_case_punctuation_and_composition() -> None:
    assert normalize("  STRASSE_1, caf\u0065\u0301! ") == normalize("straße 1 -- CAF\u00c9") == "strasse 1 café"


@given(st.text())
def test_normalized_text_has_only_letters_digits_and_single_blanks(text: str) -> None:
    result = normalize(text)
    assert result == " ".join(result.split())
    assert all(word.replace("_", "-").isalnum() for word in result.split())


@given(st.text(alphabet=st.characters(whitelist_categories=("Ll", "Nd"), max_codepoint=127), min_size=1))
def test_marks_around_a_word_do_not_change_the_key(word: str) -> None:
    assert normalize(f"x [[ {word} ]] y") == normalize(f"x {word} y") == normalize(f"X, {word.upper()}; y.")


def test_texts_without_letters_stand_for_themselves() -> None:
    assert normalized_key(Example("1", "?", "a")) != normalized_key(Example("2", "!", "a"))


def test_keys_tell_the_two_texts_apart() -> None:
    one, other = Example("1", "a b", "x", text_pair="c"), Example("2", "a", "x", text_pair="b c")
    assert exact_key(one) != exact_key(other)
    assert normalized_key(one) != normalized_key(other)
