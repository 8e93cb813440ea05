"""Texts that count as equal: without entity markers, case and punctuation."""

from __future__ import annotations

import re
import unicodedata

from endtask.records import Example

# (substring that every match has, pattern, replacement); markers count in pairs only, so that `cout << x` and a
# subword such as `##ing` do not change.
_MARKERS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("[[", re.compile(r"\[\[\s*(.*?)\s*\]\]", re.DOTALL), r"\1"),
    ("<<", re.compile(r"<<\s*(.*?)\s*>>", re.DOTALL), r"\1"),
    ("[unused", re.compile(r"\[unused\d+\]\s*"), ""),
    ("<e", re.compile(r"<e(\d+)>\s*(.*?)\s*</e\1>", re.DOTALL), r"\2"),
    ("@@", re.compile(r"@@\s*(.*?)\s*##", re.DOTALL), r"\1"),
)
_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")


def remove_entity_markers(text: str) -> str:
    """Return the text without the markers that relation tasks put around entities.

    >>> remove_entity_markers("<< EGFR >> inhibitors include [[ gefitinib ]] .")
    'EGFR inhibitors include gefitinib .'
    """
    for substring, pattern, replacement in _MARKERS:
        if substring in text:
            text = pattern.sub(replacement, text)
    return text


def normalize(text: str) -> str:
    """Return the letters and digits of a text without entity markers, case folded, separated by single blanks.

    >>> normalize("The [[ Gefitinib ]] (Iressa, ZD-1839)!")
    'the gefitinib iressa zd 1839'
    """
    composed = unicodedata.normalize("NFC", remove_entity_markers(text))
    return _NOT_ALPHANUMERIC.sub(" ", composed.casefold()).strip()


def exact_key(example: Example) -> str:
    """Return a key that is equal for two examples with the same text and second text."""
    return example.text if example.text_pair is None else f"{example.text}\x1f{example.text_pair}"


def normalized_key(example: Example) -> str:
    """Return a key that is equal for two examples with the same text and second text after `normalize`.

    A text without any letter or digit is its own key; otherwise "?" and "!" would count as equal.
    """
    return "\x1f".join(normalized_texts(example))


def normalized_texts(example: Example) -> tuple[str, ...]:
    """Return the normalised text, or the two of a pair."""
    parts = [example.text] if example.text_pair is None else [example.text, example.text_pair]
    return tuple(normalize(part) or part for part in parts)
