"""Byte-level BPE decodes every text to itself."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from endtask.config import TokenizerSettings
from endtask.tokenization.tokenizer import SPECIAL_TOKENS, train_tokenizer
from tests.tiny import MAX_LENGTH, make_texts

# Without characters that Python's tables do not know: the tokenizers library may know newer ones, with a lower case.
KNOWN = st.characters(exclude_categories=("Cs", "Cn"))
TEXT = st.text(KNOWN, max_size=60) | st.text("aB [M]é中\n\u200d🙂", max_size=40)


@cache
def byte_pairs(lowercase: bool) -> PreTrainedTokenizerFast:
    chosen = TokenizerSettings(kind="bpe", vocab_size=400, lowercase=lowercase, entity_markers=("[[", "]]"))
    return train_tokenizer([*make_texts(80), "Été 中文 [[x]]"], chosen, MAX_LENGTH)


def round_trip(tokenizer: PreTrainedTokenizerFast, text: str) -> str:
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    decoded: str = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return decoded


@given(text=TEXT)
def test_any_text_comes_back(text: str) -> None:
    assert round_trip(byte_pairs(lowercase=False), text) == text


@given(text=TEXT)
def test_with_lowercase_the_text_comes_back_in_lower_case(text: str) -> None:
    # Letter by letter, as the tokenizer does it: Python lowers a final sigma by its place in the word.
    lowered = "".join(letter.lower() for letter in text)
    given = ("[[", "]]", *SPECIAL_TOKENS)
    if not any(token in text for token in given):
        assert round_trip(byte_pairs(lowercase=True), text) == lowered


@pytest.mark.parametrize("lowercase", [True, False])
def test_markers_and_special_tokens_come_back_as_they_are(lowercase: bool) -> None:
    assert round_trip(byte_pairs(lowercase), "a [[b]]  [MASK] c") == "a [[b]]  [MASK] c"


def test_nothing_is_unknown() -> None:
    tokenizer = byte_pairs(lowercase=True)
    assert tokenizer.unk_token_id not in tokenizer("\x00 ༀ 𐍈 🙂")["input_ids"]
