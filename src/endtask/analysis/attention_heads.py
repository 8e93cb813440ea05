"""Count attention heads by where their maxima are, as TLM does (Figure 3 and appendix C)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HeadKind = Literal["positional", "vertical", "other"]
Counts = NDArray[np.int64]

_TENTHS = 9
"""Nine tenths of the maxima decide the kind of a head: at least for positional heads, more for vertical ones."""
_FULL_STOP = "."
_WORD_STARTS = "Ġ▁ "
"""What byte-level and unigram tokenizers put before a token that begins a word."""


@dataclass(frozen=True)
class Maxima:
    """The maxima of attention of each head: one per token of each text, over all tokens of the same text.

    `neighbours` and `fixed` (layers, heads) count those on the token before or after, and on [CLS], [SEP], full stops.
    """

    tokens: int
    neighbours: Counts
    fixed: Counts

    def __add__(self, other: Maxima) -> Maxima:
        return Maxima(self.tokens + other.tokens, self.neighbours + other.neighbours, self.fixed + other.fixed)

    @property
    def kinds(self) -> list[list[HeadKind]]:
        """The kind of each head, a list per layer. A head of both kinds, as of very short texts, is positional."""
        pairs = zip(self.neighbours.tolist(), self.fixed.tolist(), strict=True)
        return [[self._kind(*counts) for counts in zip(*layer, strict=True)] for layer in pairs]

    def _kind(self, neighbours: int, fixed: int) -> HeadKind:
        if 10 * neighbours >= _TENTHS * self.tokens:
            return "positional"
        return "vertical" if 10 * fixed > _TENTHS * self.tokens else "other"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {"tokens": self.tokens, "neighbours": self.neighbours.tolist(), "fixed": self.fixed.tolist()}


def count_maxima(attentions: Sequence[Tensor], present: Tensor, is_fixed: Tensor) -> Maxima:
    """Count the maxima in a batch of texts; of equal maxima the first one counts.

    `attentions` has the probabilities (S, heads, T, T) of each layer, `present` (S, T) tells tokens from padding, and
    `is_fixed` (S, T) the tokens [CLS], [SEP] and full stops.

    >>> maxima = count_maxima([torch.eye(3).roll(1, 1)[None, None]], torch.ones(1, 3).bool(), torch.zeros(1, 3).bool())
    >>> maxima.tokens, maxima.neighbours.tolist()  # 0 -> 1, 1 -> 2, 2 -> 0
    (3, [[2]])
    """
    positions = torch.arange(present.shape[1], device=present.device)
    counted = present[:, None]  # (S, 1, T)
    neighbours, fixed = [], []
    for layer in attentions:
        best = layer.argmax(-1)  # (S, heads, T)
        is_near = (best - positions).abs() == 1
        on_fixed = is_fixed[:, None].expand_as(best).gather(-1, best)
        neighbours.append((is_near & counted).sum((0, 2)))
        fixed.append((on_fixed & counted).sum((0, 2)))
    return Maxima(int(present.sum()), torch.stack(neighbours).cpu().numpy(), torch.stack(fixed).cpu().numpy())


def fixed_tokens(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids of [CLS], [SEP] and full stops, which differ between tokenizers."""
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id}
    return sorted(special | set(_full_stops(tokenizer.get_vocab().items())))


def _full_stops(vocabulary: Iterable[tuple[str, int]]) -> list[int]:
    """Return the ids of full stops.

    >>> _full_stops([("Ġ.", 7), ("##.", 8), ("▁.", 9), (".", 10), ("...", 11), ("e.", 12)])
    [7, 8, 9, 10]
    """
    return [number for token, number in vocabulary if token.removeprefix("##").strip(_WORD_STARTS) == _FULL_STOP]
