"""ModernBERT, by Hugging Face's own classes, all layers global; the head reads the mean over the tokens.

A first token learns to stand for its text only late; the mean is useful from the first step, which is what short
training from random weights needs (docs/decisions.md).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import (
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
)
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

from endtask.models.batch import TextBatch
from endtask.models.sizes import Shape


class MeanHead(nn.Module):
    """The head of `ModernBertForSequenceClassification` with mean pooling: dense-GELU-norm, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.head = ModernBertPredictionHead(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Class logits from the mean over real tokens: (B, T, hidden), (B, T) -> (B, classes)."""
        total = (hidden * attention_mask.unsqueeze(-1)).sum(dim=1)  # (B, T, hidden) -> (B, hidden)
        pooled = total / attention_mask.sum(dim=1, keepdim=True)
        logits: Tensor = self.classifier(self.dropout(self.head(pooled)))
        return logits


class ModernBert:
    """Rotary positions, gated feed-forward layers, no biases, no token types."""

    name = "modernbert"
    input_names: tuple[str, ...] = ("input_ids", "attention_mask")
    to_classifier = {"body.": "model.", "task.head.": "head.", "task.classifier.": "classifier."}  # noqa: RUF012
    to_masked_lm = {"body.": "model.", "masked_lm.transform.": "head.", "masked_lm.bias": "decoder.bias"}  # noqa: RUF012

    def config(
        self, shape: Shape, *, vocabulary: int, special_ids: dict[str, int], positions: int, dropout: float
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
            classifier_pooling="mean",
            attn_implementation="sdpa",
            **vars(shape),
        )

    def body(self, config: Any) -> nn.Module:
        body: nn.Module = ModernBertModel(config)
        return body

    def embeddings(self, body: nn.Module) -> nn.Embedding:
        return body.get_submodule("embeddings.tok_embeddings")  # type: ignore[return-value]

    def hidden_states(self, body: nn.Module, batch: TextBatch) -> Tensor:
        hidden: Tensor = body(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        return hidden

    def masked_lm_transform(self, config: Any) -> nn.Module:
        transform: nn.Module = ModernBertPredictionHead(config)
        return transform

    def task_head(self, config: Any) -> nn.Module:
        return MeanHead(config)

    def classifier(self, config: Any) -> Any:
        return ModernBertForSequenceClassification(config)

    def masked_lm(self, config: Any) -> Any:
        return ModernBertForMaskedLM(config)
