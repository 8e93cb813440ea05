"""Counted FLOPs, against torch's own counter on Hugging Face's models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from endtask.encoders.base import Shape
from endtask.encoders.flops import ModelCost, training_flops

SHAPE = Shape(hidden_size=24, num_hidden_layers=3, num_attention_heads=2, intermediate_size=40)
TEXTS, LENGTH, VOCABULARY, CLASSES = 4, 11, 50, 3
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "bert": (BertConfig, BertForMaskedLM, BertForSequenceClassification),
    "roberta": (RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification),
    "modernbert": (ModernBertConfig, ModernBertForMaskedLM, ModernBertForSequenceClassification),
}


def make_config(architecture: str) -> Any:
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return MODELS[architecture][0](
        vocab_size=VOCABULARY,
        num_labels=CLASSES,
        max_position_embeddings=32,
        attn_implementation="eager",  # torch counts matrix products, not what fused attention does inside
        **({"global_attn_every_n_layers": 1} if architecture == "modernbert" else {}),
        **special,
        **vars(SHAPE),
    )


def make_cost(architecture: str) -> ModelCost:
    return ModelCost(
        SHAPE.hidden_size,
        SHAPE.num_hidden_layers,
        SHAPE.intermediate_size,
        gated=architecture == "modernbert",
        vocabulary=VOCABULARY,
        classes=CLASSES,
    )


def input_ids() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (TEXTS, LENGTH), generator=torch.Generator().manual_seed(0))


def counted(counter: FlopCounterMode) -> int:
    """All matrix products but the outer product that lays out rotary angles, which is no work of a layer."""
    rotary = [sum(flops.values()) for name, flops in counter.get_flop_counts().items() if name.endswith("rotary_emb")]
    return counter.get_total_flops() - sum(rotary)


ALL_TOKENS = {"tokens": TEXTS * LENGTH, "squared_lengths": TEXTS * LENGTH**2}


@pytest.mark.parametrize("architecture", MODELS)
def test_masked_lm_at_every_position(architecture: str) -> None:
    model = MODELS[architecture][1](make_config(architecture))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=input_ids())
    assert make_cost(architecture).forward_flops(**ALL_TOKENS, masked=TEXTS * LENGTH) == counted(counter)


@pytest.mark.parametrize("architecture", MODELS)
def test_classification(architecture: str) -> None:
    model = MODELS[architecture][2](make_config(architecture))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=input_ids())
    assert make_cost(architecture).forward_flops(**ALL_TOKENS, texts=TEXTS) == counted(counter)


@pytest.mark.parametrize("architecture", MODELS)
def test_a_training_step_is_three_times_a_pass_forward(architecture: str) -> None:
    model = MODELS[architecture][1](make_config(architecture))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=input_ids(), labels=input_ids()).loss.backward()
    assert make_cost(architecture).step_flops(**ALL_TOKENS, masked=TEXTS * LENGTH) == counted(counter)


def test_the_masked_lm_head_at_masked_positions_only() -> None:
    model = ModernBertForMaskedLM(make_config("modernbert"))
    with FlopCounterMode(display=False) as counter:
        hidden = model.model(input_ids=input_ids()).last_hidden_state
        model.decoder(model.head(hidden.flatten(0, 1)[[2, 5, 30]]))
    assert make_cost("modernbert").forward_flops(**ALL_TOKENS, masked=3) == counted(counter)


def test_texts_of_different_lengths_cost_what_they_cost_alone() -> None:
    model, lengths = BertForMaskedLM(make_config("bert")), (3, 7, 11)
    with FlopCounterMode(display=False) as counter:
        for length in lengths:
            model(input_ids=input_ids()[:1, :length])
    squares = sum(length**2 for length in lengths)
    cost = make_cost("bert").forward_flops(tokens=sum(lengths), squared_lengths=squares, masked=sum(lengths))
    assert cost == counted(counter)


def test_the_papers_rule_is_close_where_matrices_dominate() -> None:
    """6ND counts embeddings as if they were multiplied, and leaves attention out."""
    base = ModelCost(768, 12, 3072, False, 30522, 2)
    exact = base.step_flops(tokens=128, squared_lengths=128**2, masked=128)
    assert training_flops(109_500_000, 128) == 6 * 109_500_000 * 128
    assert exact == pytest.approx(training_flops(109_500_000, 128), rel=0.03)
