"""Marks that a task's texts seem to have around what they are asked about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from endtask.tokenization.special_tokens import SPECIAL_TOKENS

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
