"""The first token of each word, for every kind of tokenizer, and truncated words."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.tokenization.packed_texts import NO_TOKEN, WordStarts, first_tokens, pack_tagged
from endtask.tokenization.tokenizer import train_tokenizer
from tests.tiny import make_texts

KINDS = ("wordpiece", "bpe", "unigram")
ODD = ["river", "IL-2", "é", "3.5", "stones", "don't", "雨", "a\u200bb"]
words_of_texts = st.lists(
    st.one_of(st.sampled_from(ODD), st.text("abCé-.9", min_size=1, max_size=6)), min_size=1, max_size=8
)


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    return train_tokenizer(make_texts(100), TokenizerSettings.model_validate({"kind": kind, "vocab_size": 120}), 256)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(words_of_texts, min_size=1, max_size=4))
@settings(max_examples=25)
def test_every_word_has_the_first_token_that_touches_it(
    tmp_path_factory: pytest.TempPathFactory, kind: str, texts: list[list[str]]
) -> None:
    tokenizer = tokenizer_of(kind)
    packed = pack_tagged(texts, tokenizer, 256, tmp_path_factory.mktemp("packed"))
    words = WordStarts(packed)
    assert words.words.tolist() == [len(text) for text in texts]
    numbers, places = words.gather(np.arange(len(texts)), packed.offsets[:-1])
    found = dict(zip(numbers.tolist(), places.tolist(), strict=True))
    number = 0
    for position, text in enumerate(texts):
        encoding = tokenizer(" ".join(text), return_offsets_mapping=True)
        assert packed[position].tolist() == encoding["input_ids"], "tokens are those of the plain text"
        start = 0
        for word in text:
            touching = [
                place
                for place, (first, last) in enumerate(encoding["offset_mapping"])
                if max(first, start) < min(last, start + len(word))
            ]
            expected = packed.offsets[position] + touching[0] if touching else None
            assert found.get(number) == expected
            start, number = start + len(word) + 1, number + 1


def test_words_behind_the_end_have_no_token(tmp_path: Path) -> None:
    packed = pack_tagged([["river"] * 10, ["stone"]], tokenizer_of("wordpiece"), 6, tmp_path)
    words = WordStarts(packed)
    assert len(packed[0]) == 6
    assert words.lost > 0
    numbers, places = words.gather(np.array([1, 0]), np.array([0, 100]))
    assert numbers[0] == 10
    assert places[0] == 1, "the second text's first word stands behind [CLS]"
    assert (places[1:] > 100).all()
    assert len(numbers) == 11 - words.lost


def test_two_words_in_one_token() -> None:
    spans = np.array([[0, 0], [0, 6], [7, 8]])
    assert first_tokens(["in", "Rom", "e"], spans).tolist() == [1, NO_TOKEN, 2]
