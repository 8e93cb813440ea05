"""RoBERTa, by Hugging Face's own classes: BERT's encoder with other heads and without token types."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead

from endtask.encoders.base import Pooling
from endtask.encoders.bert import Bert
from endtask.encoders.packed_attention import ATTENTION
from endtask.encoders.sizes import Shape


class FirstTokenHead(nn.Module):
    """The head of `RobertaForSequenceClassification`: dropout, dense, tanh, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.stock = RobertaClassificationHead(config)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.stock(pooled.unsqueeze(1))  # it takes the first token itself
        return logits


class LanguageTransform(nn.Module):
    """The masked-LM head before the output matrix: dense, GELU, norm."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., hidden)"""
        out: Tensor = self.layer_norm(functional.gelu(self.dense(hidden)))
        return out


class Roberta(Bert):
    """No token types; the first token stands at position pad id + 1."""

    name = "roberta"
    input_names: tuple[str, ...] = ("input_ids", "attention_mask")
    to_classifier = {"encoder.": "roberta.", "heads.task.stock.": "classifier."}  # noqa: RUF012
    to_tagger = {"encoder.": "roberta.", "heads.task.classifier.": "classifier."}  # noqa: RUF012
    to_masked_lm = {  # noqa: RUF012
        "encoder.": "roberta.",
        "heads.masked_lm.transform.": "lm_head.",
        "heads.masked_lm.bias": "lm_head.bias",
    }

    def config(
        self,
        shape: Shape,
        *,
        vocabulary: int,
        special_ids: dict[str, int],
        positions: int,
        dropout: float,
        pooling: Pooling,
    ) -> Any:
        return RobertaConfig(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            bos_token_id=special_ids["cls"],
            eos_token_id=special_ids["sep"],
            max_position_embeddings=positions + special_ids["pad"] + 1,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation=ATTENTION,
            **vars(shape),
        )

    def longest_text(self, config: Any) -> int:
        return int(config.max_position_embeddings) - int(config.pad_token_id) - 1

    def encoder(self, config: Any) -> nn.Module:
        encoder: nn.Module = RobertaModel(config, add_pooling_layer=False)
        return encoder

    def first_position(self, encoder: nn.Module) -> int:
        return (self.embeddings(encoder).padding_idx or 0) + 1

    def masked_lm_transform(self, config: Any) -> nn.Module:
        return LanguageTransform(config)

    def task_head(self, config: Any) -> nn.Module:
        return FirstTokenHead(config)

    def classifier(self, config: Any) -> Any:
        return RobertaForSequenceClassification(config)

    def tagger(self, config: Any) -> Any:
        return RobertaForTokenClassification(config)

    def masked_lm(self, config: Any) -> Any:
        return RobertaForMaskedLM(config)
