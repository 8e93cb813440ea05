"""BERT, by Hugging Face's own classes, over padded tables or without padding; the head reads the first token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from transformers.models.bert.modeling_bert import BertPooler, BertPredictionHeadTransform

from endtask.encoders.attention import Backend, Guide, guide_for
from endtask.encoders.base import Pooling, through_table
from endtask.encoders.batch import TextBatch
from endtask.encoders.packed_attention import ATTENTION
from endtask.encoders.sizes import Shape


class PoolerHead(nn.Module):
    """The head of `BertForSequenceClassification`: pooler, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.pooler = BertPooler(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.classifier(self.dropout(self.pooler(pooled.unsqueeze(1))))
        return logits


class TokenHead(nn.Module):
    """The head of `BertForTokenClassification` and RoBERTa's: dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, hidden) -> (N, tags)"""
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits


class Bert:
    """The architecture of the TLM and ISS papers."""

    name = "bert"
    padded = True
    backends: tuple[Backend, ...] = ("varlen", "padded")
    gated = False
    input_names: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
    poolings: tuple[Pooling, ...] = ("cls",)
    to_classifier = {  # noqa: RUF012
        "encoder.": "bert.",
        "heads.task.pooler.": "bert.pooler.",
        "heads.task.classifier.": "classifier.",
    }
    to_tagger = {"encoder.": "bert.", "heads.task.classifier.": "classifier."}  # noqa: RUF012
    to_masked_lm = {  # noqa: RUF012
        "encoder.": "bert.",
        "heads.masked_lm.transform.": "cls.predictions.transform.",
        "heads.masked_lm.bias": "cls.predictions.bias",
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
        return BertConfig(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            max_position_embeddings=positions,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation=ATTENTION,
            **vars(shape),
        )

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        config.classifier_dropout = None  # as the encoder's
        config._attn_implementation = ATTENTION

    def longest_text(self, config: Any) -> int:
        return int(config.max_position_embeddings)

    def pooling(self, config: Any) -> Pooling:
        return "cls"

    def encoder(self, config: Any) -> nn.Module:
        encoder: nn.Module = BertModel(config, add_pooling_layer=False)
        return encoder

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        return encoder.get_submodule("embeddings.word_embeddings")  # type: ignore[return-value]

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        if backend == "padded":
            pad_id = self.embeddings(encoder).padding_idx or 0
            return through_table(encoder, batch, names=self.input_names, pad_id=pad_id)
        return self.packed(encoder, batch, guide_for(backend, batch))

    def packed(self, encoder: nn.Module, batch: TextBatch, guide: Guide) -> Tensor:
        """The same without padding: all tokens are one text to everything but attention."""
        inputs = {"input_ids": batch.input_ids, "token_type_ids": batch.token_type_ids}
        named = {name: one[None] for name, one in inputs.items() if name in self.input_names}  # (1, N)
        positions = self.first_position(encoder) + batch.position_ids[None]
        hidden: Tensor = encoder(**named, position_ids=positions, guide=guide).last_hidden_state
        return hidden[0]

    def first_position(self, encoder: nn.Module) -> int:
        """Where a text's first token stands."""
        return 0

    def masked_lm_transform(self, config: Any) -> nn.Module:
        transform: nn.Module = BertPredictionHeadTransform(config)
        return transform

    def task_head(self, config: Any) -> nn.Module:
        return PoolerHead(config)

    def token_head(self, config: Any) -> nn.Module:
        return TokenHead(config)

    def classifier(self, config: Any) -> Any:
        return BertForSequenceClassification(config)

    def tagger(self, config: Any) -> Any:
        return BertForTokenClassification(config)

    def masked_lm(self, config: Any) -> Any:
        return BertForMaskedLM(config)
