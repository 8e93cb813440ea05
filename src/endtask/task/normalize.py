"""Texts reduced to what makes two of them the same: no entity markers, no case, no punctuation."""

from __future__ import annotations

import re
import unicodedata

from endtask.records import Example

# (a quick sign that the mark may occur, the mark, what is left of it); marks count in pairs only, so that
# `cout << x` and a word piece such as `##ing` stay as they are.
_MARKERS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("[[", re.compile(r"\[\[\s*(.*?)\s*\]\]", re.DOTALL), r"\1"),
    ("<<", re.compile(r"<<\s*(.*?)\s*>>", re.DOTALL), r"\1"),
    ("[unused", re.compile(r"\[unused\d+\]\s*"), ""),
    ("<e", re.compile(r"<e(\d+)>\s*(.*?)\s*</e\1>", re.DOTALL), r"\2"),
    ("@@", re.compile(r"@@\s*(.*?)\s*##", re.DOTALL), r"\1"),
)
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def remove_entity_markers(text: str) -> str:
    """The text without the marks that relation tasks put around entities.

    >>> remove_entity_markers("<< EGFR >> inhibitors include [[ gefitinib ]] .")
    'EGFR inhibitors include gefitinib .'
    """
    for sign, mark, rest in _MARKERS:
        if sign in text:
            text = mark.sub(rest, text)
    return text


def normalize(text: str) -> str:
    """The letters and digits of a text without entity markers, case folded, with single blanks between.

    >>> normalize("The [[ Gefitinib ]] (Iressa, ZD-1839)!")
    'the gefitinib iressa zd 1839'
    """
    composed = unicodedata.normalize("NFC", remove_entity_markers(text))
    return _NOT_ALPHANUMERIC.sub(" ", composed.casefold()).strip()


def exact_key(example: Example) -> str:
    """Equal for two examples whose text and second text are the same to the letter."""
    return example.text if example.text_pair is None else f"{example.text}\x1f{example.text_pair}"


def normalized_key(example: Example) -> str:
    """Equal for two examples whose text and second text are the same after `normalize`.

    A text without any letter or digit stands for itself; otherwise "?" and "!" would count as equal.
    """
    return "\x1f".join(normalized_texts(example))


def normalized_texts(example: Example) -> tuple[str, ...]:
    """The normalised text, or those of a pair."""
    parts = [example.text] if example.text_pair is None else [example.text, example.text_pair]
    return tuple(normalize(part) or part for part in parts)
