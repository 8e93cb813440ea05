"""Special tokens and entity markers of tokenizers, and the templates of texts and pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError

if TYPE_CHECKING:
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]
"""In the order of their ids in every learned tokenizer, from 0."""


def template_processor() -> TemplateProcessing:
    """Return the templates `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, the second text with token type 1."""
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )


Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class PairTemplate:
    """The special tokens before, between and after two texts; the last `of_second` between them have token type 1."""

    before: Tokens
    between: Tokens
    after: Tokens
    of_second: int = 0

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerFast) -> PairTemplate:
        """Return the template of a tokenizer, such as `[CLS] a [SEP] b [SEP]` or `<s> a </s></s> b </s>`."""
        encoding = tokenizer("a", "a", return_special_tokens_mask=True, return_token_type_ids=True)
        ids, special = np.array(encoding["input_ids"]), np.array(encoding["special_tokens_mask"], dtype=bool)
        inner = np.flatnonzero(~special)
        middle = np.flatnonzero(special & (np.arange(len(ids)) > inner[0]) & (np.arange(len(ids)) < inner[-1]))
        types = np.array(encoding["token_type_ids"])
        return cls(ids[: inner[0]], ids[middle], ids[inner[-1] + 1 :], int(types[middle].sum()))

    @property
    def size(self) -> int:
        """Number of special tokens in a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, first: Tokens, second: Tokens) -> tuple[Tokens, int]:
        """Return the tokens of a pair, and where token type 1 starts.

        >>> template = PairTemplate(np.array([2]), np.array([3]), np.array([3]))
        >>> tokens, start = template.join(np.array([7, 8]), np.array([9]))
        >>> tokens.tolist(), start
        ([2, 7, 8, 3, 9, 3], 4)
        """
        tokens = np.concatenate([self.before, first, self.between, second, self.after])
        return tokens, len(tokens) - len(self.after) - len(second) - self.of_second


_KEY = "tokenizer.entity_markers"
_HTML = re.compile(r"</?(?:a|b|br|div|em|h\d|i|li|p|span|strong|sub|sup|td|tr|u)>")
"""HTML tags, which `likely_markers` ignores."""
_LIKELY = re.compile(r"\[\[|\]\]|<<|>>|\{\{|\}\}|</?\w{1,12}>|\[/?[A-Z]\w{0,11}\]|@[A-Z]{2,12}\$")
_MIN_FRACTION = 0.95
"""Minimum share of the texts with a marker; a few may be truncated."""
_MAX_PER_TEXT = 2.0
"""Strings that occur more often are markup."""


def check_markers(markers: Sequence[str], kind: str, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> None:
    """Raise `InputError` for markers that a tokenizer of a kind cannot distinguish from other text.

    >>> check_markers(["[[", "]]"], "wordpiece")
    >>> check_markers(["[[", "[["], "wordpiece")
    Traceback (most recent call last):
        ...
    endtask.errors.InputError: key 'tokenizer.entity_markers': '[[' is named twice
    """
    for position, marker in enumerate(markers):
        if not marker or marker != marker.strip():
            raise InputError(f"{marker!r} is empty or has blanks at its ends", key=_KEY, hint="blanks are never needed")
        if marker in special_tokens:
            raise InputError(f"{marker!r} is a special token already", key=_KEY)
        if marker in markers[:position]:
            raise InputError(f"{marker!r} is named twice", key=_KEY)
        if kind == "bpe" and _encodes_bytes(marker):
            raise InputError(
                f"{marker!r} also encodes bytes of other letters in a bpe tokenizer",
                key=_KEY,
                hint="choose a marker of ASCII characters, such as '[[', or another tokenizer.kind",
            )


def marker_pattern(markers: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the markers, longest first as in the tokenizer: `[[[` before `[[`.

    >>> marker_pattern(["[[", "[[["]).findall("[[ a [[[ b")
    ['[[', '[[[']
    """
    return re.compile("|".join(map(re.escape, sorted(markers, key=len, reverse=True))))


def add_markers(tokenizer: PreTrainedTokenizerFast, markers: Sequence[str]) -> None:
    """Make each marker one token of the tokenizer; new markers get ids at the end.

    The tokenizer finds markers in the original text, before lower-casing. They are ordinary tokens, not special ones:
    decoding returns them, and masked language modelling may mask them, which trains their embeddings. (The TLM authors'
    code masks `[[` like any other text, as two brackets.) The tokenizer finds markers inside words too, so plain
    lower-case words make poor markers.
    """
    from tokenizers import AddedToken

    kind = type(tokenizer.backend_tokenizer.model).__name__.lower()
    check_markers(markers, kind, tokenizer.all_special_tokens)
    tokenizer.add_tokens([AddedToken(marker, normalized=False, special=False) for marker in markers])
    for marker in markers:
        if len(tokenizer.encode(marker, add_special_tokens=False)) != 1:
            raise InputError(f"{marker!r} cannot be one token of this tokenizer", key=_KEY)


def _encodes_bytes(marker: str) -> bool:
    """Return whether a byte-level vocabulary may have the same string for other text.

    Its tokens write each byte as a character: the second byte of `ç` is written `§`.
    """
    from tokenizers.pre_tokenizers import ByteLevel

    return not marker.isascii() and set(marker) <= set(ByteLevel.alphabet())


def likely_markers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return strings such as `[[` that occur once or twice in nearly every text, in the order of the first text.

    >>> likely_markers(["[[ aspirin ]] blocks << COX-1 >>", "<< p53 >> and [[ zinc ]], see [1]"])
    ('[[', ']]', '<<', '>>')
    >>> likely_markers(["<b>no</b> marker", "here"])
    ()
    """
    by_text = [Counter(marker for marker in _LIKELY.findall(text) if _is_candidate(marker)) for text in texts]
    texts_with = Counter(marker for counts in by_text for marker in counts)
    total = sum(by_text, Counter[str]())
    least = _MIN_FRACTION * len(texts)
    return tuple(
        marker for marker, count in texts_with.items() if count >= least and total[marker] <= _MAX_PER_TEXT * count
    )


def _is_candidate(marker: str) -> bool:
    return marker not in SPECIAL_TOKENS and _HTML.fullmatch(marker) is None
