"""Words against a definition by single characters, with Unicode's names and categories."""

from __future__ import annotations

import re
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.retrieval.words import (
    BLANK,
    CODE_POINTS,
    CODE_POINTS_WITH_CASE,
    IDEOGRAPH,
    LETTER,
    OTHER,
    character_classes,
    fold,
    lower_cases,
    word_hash,
    words_of,
)

ODD = "aAbB19_ -.'É\u0301\u0307ßẞıİIiΣσςǅKÅ日本〇々のテءक्षि٣Ⅷ²½Ⓐ😀\u200d\U0001f1e9𝔸𐐀𠀀豈가\u3000\u0085\n\t"
TEXTS = st.text(max_size=60) | st.text(alphabet=st.sampled_from(ODD), max_size=40)


def is_ideograph(character: str) -> bool:
    name = unicodedata.name(character, "")
    return name.startswith(("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH")) or character == "〇"


def class_of(character: str) -> int:
    if is_ideograph(character):
        return IDEOGRAPH
    if unicodedata.category(character)[0] in "LNM":
        return LETTER
    return BLANK if character.isspace() else OTHER


def slow_words(text: str) -> list[str]:
    """Letter by letter, each lower-cased by itself."""
    marked = "".join(
        f" {character} " if kind == IDEOGRAPH else character if kind == LETTER else " "
        for character in "".join("σ" if letter == "ς" else letter.lower() for letter in text)
        for kind in [class_of(character)]
    )
    return marked.split()


@given(TEXTS)
def test_words_are_runs_of_letters_digits_and_marks(text: str) -> None:
    assert words_of(text) == slow_words(text)


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=60))
def test_ascii_words_are_those_of_a_plain_pattern(text: str) -> None:
    assert words_of(text) == re.findall("[a-z0-9]+", text.lower())


@given(TEXTS)
def test_words_of_words_are_the_same(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words
    assert words_of(text.swapcase().lower()) == words_of(text.swapcase())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("-- __ ... 😀", []),
        ("snake_case isn't", ["snake", "case", "isn", "t"]),
        ("X-ray (Zürich) ÉTÉ", ["x", "ray", "zürich", "été"]),
        ("e\u0301te\u0301 \u0301x", ["e\u0301te\u0301", "\u0301x"]),
        ("ΣΊΣΥΦΟΣ σίσυφος", ["σίσυφοσ", "σίσυφοσ"]),
        ("İSTANBUL Iı", ["i\u0307stanbul", "iı"]),
        ("a日本b語のテキスト。〇", ["a", "日", "本", "b", "語", "のテキスト", "〇"]),
        ("한국어 Москва 2024 ٣", ["한국어", "москва", "2024", "٣"]),
        ("हिन्दी", ["हिन्दी"]),
        ("5\u212a 10\u212b", ["5k", "10å"]),
    ],
)
def test_words_in_several_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_every_character_has_the_class_that_unicode_gives_it() -> None:
    classes = character_classes()
    assert len(classes) == CODE_POINTS == sys.maxunicode + 1
    expected = np.fromiter(map(class_of, map(chr, range(CODE_POINTS))), dtype=np.uint8, count=CODE_POINTS)
    assert np.flatnonzero(classes != expected).tolist() == []


def test_lower_case_keeps_the_class_and_only_one_character_becomes_two() -> None:
    classes, lower = character_classes(), lower_cases()
    two = []
    for point in range(CODE_POINTS):
        folded = fold(chr(point))
        assert {int(classes[ord(part)]) for part in folded} == {int(classes[point])}, hex(point)
        if point < CODE_POINTS_WITH_CASE:
            assert ord(folded[0]) == lower[point]
        else:
            assert folded == chr(point)
        if len(folded) > 1:
            two.append((chr(point), folded))
    assert two == [("İ", "i\u0307")]


@given(TEXTS)
def test_the_hash_is_fnv_over_code_points(text: str) -> None:
    value = 0xCBF29CE484222325
    for character in text:
        value = (value ^ ord(character)) * 0x100000001B3 & (2**64 - 1)
    assert word_hash(text) == value


def test_known_hashes() -> None:
    assert word_hash("") == 0xCBF29CE484222325
    assert word_hash("foobar") == 0x85944171F73967E8  # published for FNV-1a
