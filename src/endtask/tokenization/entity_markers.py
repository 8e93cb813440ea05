"""Marks: strings such as `[[` and `]]` around an entity, each kept whole as one token."""

from __future__ import annotations

import re
from collections import Counter
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


_NOT = re.compile(r"</?(?:a|b|br|div|em|h\d|i|li|p|span|strong|sub|sup|td|tr|u)>")
"""HTML; special tokens cannot be marks either."""
_MARK = re.compile(r"\[\[|\]\]|<<|>>|\{\{|\}\}|</?\w{1,12}>|\[/?[A-Z]\w{0,11}\]|@[A-Z]{2,12}\$")
_SHARE = 0.95
"""Of the texts; a few may have been cut."""
_MOST = 2.0
"""Times in a text: what stands there more often is markup."""


def likely_markers(texts: Sequence[str]) -> tuple[str, ...]:
    """Strings such as `[[` that stand once or twice in nearly every text, in the order of the first text.

    >>> likely_markers(["[[ aspirin ]] blocks << COX-1 >>", "<< p53 >> and [[ zinc ]], see [1]"])
    ('[[', ']]', '<<', '>>')
    >>> likely_markers(["<b>no</b> marks", "here"])
    ()
    """
    found = [Counter(mark for mark in _MARK.findall(text) if _may_be(mark)) for text in texts]
    present, times = Counter(name for counts in found for name in counts), sum(found, Counter[str]())
    least = _SHARE * len(texts)
    return tuple(name for name in present if present[name] >= least and times[name] <= _MOST * present[name])


def _may_be(mark: str) -> bool:
    return mark not in SPECIAL_TOKENS and _NOT.fullmatch(mark) is None
