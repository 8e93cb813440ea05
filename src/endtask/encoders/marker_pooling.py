"""A classifier that reads the marks of a text alone, in the form of Hugging Face's own models.

Their classifiers know the first token and the mean. The head has other names here than there, so that a stock class
warns of a head that it misses, rather than reading the mean unasked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import ModernBertModel, ModernBertPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.modernbert.modeling_modernbert import ModernBertPredictionHead

from endtask.encoders.base import markers_of

TO_MARKED = {"encoder.": "model.", "heads.task.head.": "marked_head.", "heads.task.classifier.": "marked_classifier."}
"""Prefixes of our weights' names -> prefixes here."""


class ModernBertForMarkedClassification(ModernBertPreTrainedModel):  # type: ignore[misc]
    """ModernBERT's classifier over the mean of the tokens `config.marker_token_ids`, or of all where none is there."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ModernBertModel(config)
        self.marked_head = ModernBertPredictionHead(config)
        self.drop = nn.Dropout(config.classifier_dropout)
        self.marked_classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:  # other inputs that tokenizers may make are of no use here
        """Tokens and which of them are there, both (S, T) -> logits (S, classes)."""
        there = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = self.model(input_ids=input_ids, attention_mask=there).last_hidden_state  # (S, T, hidden)
        read = self._read(input_ids, there.bool())[..., None].to(hidden.dtype)  # (S, T, 1)
        pooled = (hidden * read).sum(1) / read.sum(1)  # (S, hidden)
        return SequenceClassifierOutput(logits=self.marked_classifier(self.drop(self.marked_head(pooled))))

    def _read(self, input_ids: Tensor, there: Tensor) -> Tensor:
        is_mark = torch.stack([input_ids == mark for mark in markers_of(self.config)]).any(0) & there  # (S, T)
        return is_mark | (there & ~is_mark.any(1, keepdim=True))


def classifier_class(config: Any) -> Any:
    """The class that loads a saved classifier of texts."""
    from transformers import AutoModelForSequenceClassification

    return ModernBertForMarkedClassification if markers_of(config) else AutoModelForSequenceClassification
