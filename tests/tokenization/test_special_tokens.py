"""Pairs built from ids equal the tokenizer's pairs."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from endtask.tokenization.special_tokens import PairTemplate
from tests.aligned_toy import KINDS, make_tokenizer


def with_two_marks_between() -> PreTrainedTokenizerFast:
    """Framed as RoBERTa frames pairs, all of one token type."""
    tokenizer = copy.deepcopy(make_tokenizer())
    special = [("[CLS]", tokenizer.cls_token_id), ("[SEP]", tokenizer.sep_token_id)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=special
    )
    return tokenizer


@pytest.mark.parametrize("tokenizer", [*map(make_tokenizer, KINDS), with_two_marks_between()])
def test_a_pair_is_framed_as_by_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    frame = PairTemplate.of(tokenizer)
    for first, second in (("river", "green stone cloud"), ("candle window", "paper")):
        parts = [np.array(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (first, second)]
        tokens, start = frame.join(*parts)
        wanted = tokenizer(first, second, return_token_type_ids=True)
        assert tokens.tolist() == wanted["input_ids"]
        if any(wanted["token_type_ids"]):
            assert [int(place >= start) for place in range(len(tokens))] == wanted["token_type_ids"]
        assert frame.size == len(tokens) - len(parts[0]) - len(parts[1])
