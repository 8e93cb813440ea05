"""ModernBERT twice: `lean`, our fast encoder, and Hugging Face's own classes, which also read local layers.

The head reads the mean over the tokens: a first token learns to stand for its text only late, the mean is useful from
the first step, which is what short training from random weights needs (docs/decisions.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
)
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

from endtask.encoders.attention import FASTEST_FIRST, Backend, guide_for
from endtask.encoders.base import Pooling, markers_of, through_table
from endtask.encoders.batch import TextBatch
from endtask.encoders.lean import LeanEncoder, PredictionHead
from endtask.encoders.marker_pooling import ModernBertForMarkedClassification
from endtask.encoders.sizes import Shape


def _stock(pooling: Pooling) -> Pooling:
    """The nearest that Hugging Face's configuration has a word for."""
    return "mean" if pooling == "entity_markers" else pooling


class ModernTaskHead(nn.Module):
    """The head of ModernBERT's stock classifiers, of texts and of tokens: dense-GELU-norm, dropout, linear."""

    def __init__(self, config: Any, head: nn.Module) -> None:
        super().__init__()
        self.head = head
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.classifier(self.dropout(self.head(pooled)))
        return logits


class ModernBert:
    """Rotary positions, gated feed-forward layers, no biases, no token types."""

    name = "modernbert"
    padded = True
    backends: tuple[Backend, ...] = ("padded",)
    gated = True
    input_names: tuple[str, ...] = ("input_ids", "attention_mask")
    poolings: tuple[Pooling, ...] = ("mean", "cls", "entity_markers")
    to_classifier = {"encoder.": "model.", "heads.task.head.": "head.", "heads.task.classifier.": "classifier."}  # noqa: RUF012
    to_tagger = to_classifier
    to_masked_lm = {  # noqa: RUF012
        "encoder.": "model.",
        "heads.masked_lm.transform.": "head.",
        "heads.masked_lm.bias": "decoder.bias",
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
        return ModernBertConfig(
            vocab_size=vocabulary,
            pad_token_id=special_ids["pad"],
            cls_token_id=special_ids["cls"],
            sep_token_id=special_ids["sep"],
            bos_token_id=special_ids["cls"],
            eos_token_id=special_ids["sep"],
            max_position_embeddings=positions,
            global_attn_every_n_layers=1,
            embedding_dropout=dropout,
            mlp_dropout=dropout,
            attention_dropout=0.0,
            classifier_dropout=dropout,
            classifier_pooling=_stock(pooling),
            attn_implementation="sdpa",
            **vars(shape),
        )

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        config.embedding_dropout = config.mlp_dropout = config.classifier_dropout = dropout
        config.attention_dropout = 0.0
        config.classifier_pooling = _stock(pooling)

    def longest_text(self, config: Any) -> int:
        return int(config.max_position_embeddings)

    def pooling(self, config: Any) -> Pooling:
        stock: Pooling = config.classifier_pooling
        return "entity_markers" if markers_of(config) else stock

    def encoder(self, config: Any) -> nn.Module:
        encoder: nn.Module = ModernBertModel(config)
        return encoder

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        return encoder.get_submodule("embeddings.tok_embeddings")  # type: ignore[return-value]

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        pad_id = self.embeddings(encoder).padding_idx or 0
        return through_table(encoder, batch, names=self.input_names, pad_id=pad_id)

    def masked_lm_transform(self, config: Any) -> nn.Module:
        head: nn.Module = ModernBertPredictionHead(config)
        return head

    def task_head(self, config: Any) -> nn.Module:
        return ModernTaskHead(config, self.masked_lm_transform(config))

    def token_head(self, config: Any) -> nn.Module:
        return self.task_head(config)  # the stock classifier of tokens has the same

    def classifier(self, config: Any) -> Any:
        return (ModernBertForMarkedClassification if markers_of(config) else ModernBertForSequenceClassification)(
            config
        )

    def tagger(self, config: Any) -> Any:
        return ModernBertForTokenClassification(config)

    def masked_lm(self, config: Any) -> Any:
        return ModernBertForMaskedLM(config)


class Lean(ModernBert):
    """The same weights in our own encoder, without padding; saved as ModernBERT with global layers only."""

    name = "lean"
    padded = False
    backends = FASTEST_FIRST

    def encoder(self, config: Any) -> nn.Module:
        return LeanEncoder(config)

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        hidden: Tensor = encoder(batch.input_ids, batch.position_ids, guide_for(backend, batch), dtype)
        return hidden

    def masked_lm_transform(self, config: Any) -> nn.Module:
        return PredictionHead(config)


def rotary_of_each_kind(parameters: dict[str, Any]) -> dict[str, Any]:
    """Rotary parameters of the two kinds of layers; transformers 5.0 writes strays beside them that 5.22 refuses."""
    return {kind: value for kind, value in parameters.items() if kind in ("full_attention", "sliding_attention")}
