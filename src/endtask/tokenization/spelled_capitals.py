"""Capitals that follow each other cut apart, so that a model sees of which letters an acronym is made."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Replace


@cache
def _blanks() -> Replace:
    from tokenizers import Regex, normalizers

    return normalizers.Replace(Regex(r"(?<=\p{Lu})(?=\p{Lu})"), " ")


def spell(text: str) -> str:
    """The text as the tokenizer below sees it.

    >>> spell("The DNA of IgE")
    'The D N A of IgE'
    """
    return str(_blanks().normalize_str(text))


def spell_capitals(tokenizer: Tokenizer) -> None:
    """Let a tokenizer do so before anything else; it is saved with it, so that other tools do the same."""
    from tokenizers import normalizers

    own = tokenizer.normalizer
    tokenizer.normalizer = _blanks() if own is None else normalizers.Sequence([_blanks(), own])
