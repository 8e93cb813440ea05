"""Tiny stock Hugging Face models, saved like users' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
)

from tests.tiny import make_tokenizer

PAD = {"bert": 0, "roberta": 1, "lean": 0, "modernbert": 0}
POSITIONS = 24
CLASSES: dict[str, dict[str, Any]] = {
    "bert": {
        "bare": BertModel,
        "masked_lm": BertForMaskedLM,
        "classifier": BertForSequenceClassification,
        "pretraining": BertForPreTraining,
    },
    "roberta": {"bare": RobertaModel, "masked_lm": RobertaForMaskedLM, "classifier": RobertaForSequenceClassification},
    "lean": {
        "bare": ModernBertModel,
        "masked_lm": ModernBertForMaskedLM,
        "classifier": ModernBertForSequenceClassification,
    },
}
CLASSES["modernbert"] = CLASSES["lean"]
CASES = [(architecture, kind) for architecture, kinds in CLASSES.items() for kind in kinds]
_SPECIAL = {"bos_token_id": 2, "eos_token_id": 3}
_MODERN = {"cls_token_id": 2, "sep_token_id": 3, "local_attention": 4, **_SPECIAL}


def stock_config(architecture: str, **changes: Any) -> Any:
    """A configuration that our own code had no hand in; `modernbert` has local layers, so `lean` cannot read it."""
    sizes = {
        "vocab_size": len(make_tokenizer()) + 3,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "pad_token_id": PAD[architecture],
        "max_position_embeddings": POSITIONS + (2 if architecture == "roberta" else 0),
    }
    makers: dict[str, Any] = {
        "bert": lambda **given: BertConfig(**given),
        "roberta": lambda **given: RobertaConfig(**{"type_vocab_size": 1, **_SPECIAL, **given}),
        "lean": lambda **given: ModernBertConfig(**{**_MODERN, "global_attn_every_n_layers": 1, **given}),
        "modernbert": lambda **given: ModernBertConfig(**{**_MODERN, "global_attn_every_n_layers": 3, **given}),
    }
    return makers[architecture](**{**sizes, **changes})


def stock_model(architecture: str, kind: str, **changes: Any) -> Any:
    """A stock model with weights far from their first values."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # else the tests before this one would decide
        model = CLASSES[architecture][kind](stock_config(architecture, **changes)).eval()
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return model


def save_stock(folder: Path, architecture: str, kind: str = "masked_lm", **changes: Any) -> Any:
    """The same, saved; returns the model."""
    model = stock_model(architecture, kind, **changes)
    model.save_pretrained(folder)
    return model
