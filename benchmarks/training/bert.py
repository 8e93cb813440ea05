"""BERT with a masked-LM head and random weights, by Hugging Face's own classes: what the peers train."""

from __future__ import annotations

from typing import Any, Literal

from benchmarks.training.cases import SIZES, Case


def bert_masked_lm(case: Case, attention: Literal["sdpa", "eager"]) -> Any:
    """The model of a case, with BERT's own settings but for its size."""
    from transformers import BertConfig, BertForMaskedLM, set_seed

    size = SIZES[case.size]
    set_seed(0)
    config = BertConfig(
        vocab_size=case.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        attn_implementation=attention,
    )
    model = BertForMaskedLM(config)
    if model.config._attn_implementation != attention:
        raise RuntimeError(f"asked for {attention} attention, got {model.config._attn_implementation}")
    return model


def parameters_of(model: Any) -> int:
    """Weights, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
