"""The special tokens of every tokenizer learned here, and how they frame a text or a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.processors import TemplateProcessing

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]
"""In the order of their ids, from 0."""


def frame() -> TemplateProcessing:
    """`[CLS] text [SEP]` and `[CLS] text [SEP] second text [SEP]`, the second text with token type 1."""
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in (CLS, SEP)],
    )
