"""Heads on an encoder: masked LM, the heads of stock classifiers, and heads for encoders without stock classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.bert.modeling_bert import BertPooler
from transformers.models.roberta.modeling_roberta import RobertaClassificationHead

from endtask.encoders.batch import IGNORED, TextBatch


class MaskedLMHead(nn.Module):
    """A transform and a bias; callers pass the encoder's word embeddings as output matrix."""

    def __init__(self, transform: nn.Module, vocabulary: int) -> None:
        super().__init__()
        self.transform = transform
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor, embeddings: Tensor, positions: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy at the masked positions: (N, hidden), (vocabulary, hidden), (M,), (M,) -> ()

        It is 0 if nothing is masked, as in texts of special tokens only.
        """
        logits = self.logits(hidden[positions], embeddings)
        total = functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        return total / (targets != IGNORED).sum().clamp(min=1)

    def logits(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Return vocabulary logits: (M, hidden) -> (M, vocabulary)."""
        return functional.linear(self.transform(hidden), embeddings, self.bias)


class TlmTaskHead(nn.Module):
    """The task head of the TLM authors in pre-training: dense, GELU, dense on the first token, no dropout."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.out(functional.gelu(self.dense(pooled)))
        return logits


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
    """The head of `BertForTokenClassification` and of RoBERTa's: dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, hidden) -> (N, tags)"""
        logits: Tensor = self.classifier(self.dropout(hidden))
        return logits


class FirstTokenHead(nn.Module):
    """The head of `RobertaForSequenceClassification`: dropout, dense, tanh, dropout, linear."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.stock = RobertaClassificationHead(config)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.stock(pooled.unsqueeze(1))  # the stock head selects the first token
        return logits


class RobertaTransform(nn.Module):
    """RoBERTa's masked-LM head before the output matrix: dense, GELU, norm."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., hidden)"""
        out: Tensor = self.layer_norm(functional.gelu(self.dense(hidden)))
        return out


class ModernTaskHead(nn.Module):
    """The head of ModernBERT's stock classifiers of texts and of tokens: dense-GELU-norm, dropout, linear."""

    def __init__(self, config: Any, head: nn.Module) -> None:
        super().__init__()
        self.head = head
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """(S, hidden) -> (S, classes)"""
        logits: Tensor = self.classifier(self.dropout(self.head(pooled)))
        return logits


class DenseNorm(nn.Module):
    """Dense, GELU, norm: the default transform of encoders without stock classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., hidden)"""
        out: Tensor = self.norm(functional.gelu(self.dense(hidden)))
        return out


class TransformHead(nn.Module):
    """A transform, dropout and a linear layer: the default task head of encoders without stock classes."""

    def __init__(self, transform: nn.Module, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.transform = transform
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(width, classes)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., classes)"""
        logits: Tensor = self.classifier(self.dropout(self.transform(hidden)))
        return logits


def markers_of(config: Any) -> tuple[int, ...]:
    """Return the ids of the entity markers that the task head reads, empty if it reads other tokens."""
    return tuple(getattr(config, "marker_token_ids", None) or ())


def reads_mean(config: Any) -> bool:
    """Return whether BERT's task head reads the mean over the tokens, which no stock class does."""
    return getattr(config, "classifier_pooling", "cls") == "mean"


def pool(hidden: Tensor, batch: TextBatch, pooling: str, markers: tuple[int, ...] = ()) -> Tensor:
    """Return one vector per text: (N, hidden) -> (S, hidden).

    It is the vector of the first token, the mean over the tokens, or the mean over the entity markers. For a text
    without markers (masking may hide them) it is the mean over all tokens.
    """
    if pooling == "cls":
        # An empty text of a fixed shape starts after the last token.
        return hidden[batch.offsets[:-1].long().clamp(max=len(hidden) - 1)]
    lengths = batch.offsets.diff()  # (S,)
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pooling == "entity_markers":
        counted = _read_tokens(batch, markers).to(wide.dtype)  # (N,)
        wide = wide * counted[:, None]
        lengths = torch.zeros_like(lengths, dtype=wide.dtype).index_add(0, batch.text_ids, counted)
    total = wide.new_zeros((len(lengths), hidden.shape[1])).index_add(0, batch.text_ids, wide)
    return (total / lengths.clamp(min=1)[:, None]).to(hidden.dtype)


def mean_over(hidden: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean vector of some tokens of each padded text: (S, T, hidden), (S, T) -> (S, hidden).

    It is 0 for a text without any.
    """
    counted = tokens[..., None].to(hidden.dtype)  # (S, T, 1)
    return (hidden * counted).sum(1) / counted.sum(1).clamp(min=1)


def _read_tokens(batch: TextBatch, markers: tuple[int, ...]) -> Tensor:
    """Return which tokens are entity markers, or all tokens of texts without any: (N,)."""
    # Compared id by id: a tensor of ids would have to be copied to the device.
    is_marker = torch.stack([batch.input_ids == marker for marker in markers]).any(0)  # (N,)
    texts = len(batch.offsets) - 1
    counts = is_marker.new_zeros(texts, dtype=torch.int64).index_add(0, batch.text_ids, is_marker.long())  # (S,)
    return is_marker | (counts == 0)[batch.text_ids]
