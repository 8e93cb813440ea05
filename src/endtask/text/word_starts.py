"""Where words start among tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BLANK_MARKS = ("Ġ", "▁")  # how byte-level BPE and Metaspace write the blank in front of a word


@dataclass(frozen=True)
class WordStarts:
    """Knows of each token of a vocabulary whether it goes on with the word before it, and whether it stands alone."""

    goes_on: NDArray[np.bool_]  # (vocabulary,)
    alone: NDArray[np.bool_]  # (vocabulary,): special tokens, marks and signs; a new word starts after them

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerFast) -> WordStarts:
        """WordPiece marks later parts of words (`##ing`); the others mark the blank in front of a word instead."""
        prefix = json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("continuing_subword_prefix")
        added = {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens}
        goes_on, alone = np.zeros(len(tokenizer), dtype=bool), np.zeros(len(tokenizer), dtype=bool)
        for token, number in tokenizer.get_vocab().items():
            later = token.startswith(prefix) if prefix else not token.startswith(_BLANK_MARKS)
            alone[number] = token in added or not any(letter.isalnum() for letter in token)
            goes_on[number] = later and token not in added and (bool(prefix) or not alone[number])
        return cls(goes_on, alone)

    def among(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a word starts at each token: (N,) -> (N,)."""
        after_one_alone = np.concatenate([[True], self.alone[ids[:-1]]]) if len(ids) else np.zeros(0, dtype=bool)
        starts: NDArray[np.bool_] = ~self.goes_on[ids] | after_one_alone
        return starts
