"""Marks: strings such as `[[` and `]]` around an entity, each kept whole as one token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from endtask.errors import InputError
from endtask.tokenization.special_tokens import SPECIAL_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_KEY = "tokenizer.entity_markers"


def check_markers(markers: Sequence[str], kind: str, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> None:
    """Refuse marks that could not be told from other text by a tokenizer of that kind.

    >>> check_markers(["[[", "]]"], "wordpiece")
    >>> check_markers(["[[", "[["], "wordpiece")
    Traceback (most recent call last):
        ...
    endtask.errors.InputError: key 'tokenizer.entity_markers': '[[' is named twice
    """
    for position, mark in enumerate(markers):
        if not mark or mark != mark.strip():
            raise InputError(f"{mark!r} is empty or has blanks at its ends", key=_KEY, hint="blanks are never needed")
        if mark in special_tokens:
            raise InputError(f"{mark!r} is a special token already", key=_KEY)
        if mark in markers[:position]:
            raise InputError(f"{mark!r} is named twice", key=_KEY)
        if kind == "bpe" and _names_bytes(mark):
            raise InputError(
                f"{mark!r} also stands for bytes of other letters in a bpe tokenizer",
                key=_KEY,
                hint="take a mark of plain letters and signs, such as '[[', or another tokenizer.kind",
            )


def mark_pattern(markers: Iterable[str]) -> re.Pattern[str]:
    """Finds any of the marks, the longest first as the tokenizer does: `[[[` before `[[`.

    >>> mark_pattern(["[[", "[[["]).findall("[[ a [[[ b")
    ['[[', '[[[']
    """
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


def add_markers(tokenizer: PreTrainedTokenizerFast, markers: Sequence[str]) -> None:
    """Make each mark one token of the tokenizer; those it lacks get new ids at the end.

    Marks are found in the text as it was written, before lower-casing. They are ordinary tokens, not special ones:
    they are part of the text, so decoding keeps them and masked language modelling may hide them, which is how their
    embeddings are learned. (The TLM authors' code masks `[[` like any other text, as two brackets.) A mark is found
    inside words too, so plain lower-case words make poor marks.
    """
    from tokenizers import AddedToken

    kind = type(tokenizer.backend_tokenizer.model).__name__.lower()
    check_markers(markers, kind, tokenizer.all_special_tokens)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in markers])
    for mark in markers:
        if len(tokenizer.encode(mark, add_special_tokens=False)) != 1:
            raise InputError(f"{mark!r} cannot be one token of this tokenizer", key=_KEY)


def _names_bytes(mark: str) -> bool:
    """Whether a byte-level vocabulary may hold the same string, but for other text.

    Its tokens spell each byte as one character: the second half of `ç` is spelled `§`.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    return not mark.isascii() and set(mark) <= set(ByteLevel.alphabet())
