"""Word starts: every kind of tokenizer says where words start."""

from __future__ import annotations

import numpy as np
import pytest

from endtask.settings import TokenizerSettings
from endtask.text.tokenizer import train_tokenizer
from endtask.text.word_starts import WordStarts

TEXTS = ["the unbelievable cats (unseen) [[ walked ]] unbelievably, walking and talking"] * 3


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_words_come_together_again(kind: str) -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerSettings(kind=kind, vocab_size=64, marks=("[[", "]]")), 64)  # type: ignore[arg-type]
    encoded = tokenizer("the talking cats [[ unseen ]] (cats)")
    starts = WordStarts.of(tokenizer).among(np.array(encoded["input_ids"]))
    words: list[str] = []
    for start, token in zip(starts, encoded.tokens(), strict=True):
        bare = token.removeprefix("##").lstrip("Ġ▁")
        if start:
            words.append(bare)
        else:
            words[-1] += bare
    expected = ["[CLS]", "the", "talking", "cats", "[[", "unseen", "]]", "(", "cats", ")", "[SEP]"]
    assert [word for word in words if word] == expected


def test_no_tokens_no_starts() -> None:
    tokenizer = train_tokenizer(TEXTS, TokenizerSettings(vocab_size=64), 64)
    assert WordStarts.of(tokenizer).among(np.zeros(0, dtype=np.int64)).tolist() == []
