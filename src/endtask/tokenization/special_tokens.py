"""The special tokens of every tokenizer learned here, and the templates of texts and pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = [PAD, UNKNOWN, CLS, SEP, MASK]
"""In the order of their ids, from 0."""


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
    """The special tokens before, between and after two texts; `of_second` of the middle ones have token type 1."""

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
