"""The network under training: a body shared by all objectives and one head per objective, by name.

Body and heads are Hugging Face's own BERT modules, so that what is trained is what is saved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertPooler, BertPredictionHeadTransform

from endtask.models.batch import TextBatch
from endtask.models.sizes import Shape, shape_of
from endtask.settings import ModelSettings


class MaskedLMHead(nn.Module):
    """BERT's masked-LM head; its output matrix is the body's word embeddings, lent at each call."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Vocabulary logits of the given positions: (M, hidden) -> (M, vocabulary)."""
        return functional.linear(self.transform(hidden), embeddings, self.bias)


class ClassificationHead(nn.Module):
    """The stock head of `BertForSequenceClassification`: pooler, dropout, linear."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.pooler = BertPooler(config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden: Tensor) -> Tensor:
        """Class logits from the first token: (B, T, hidden) -> (B, classes)."""
        logits: Tensor = self.classifier(self.dropout(self.pooler(hidden)))
        return logits


class Network(nn.Module):
    """Body, masked-LM head and task head, with explicit random weights."""

    def __init__(self, config: BertConfig, seed: int) -> None:
        super().__init__()
        self.config = config
        self.body = BertModel(config, add_pooling_layer=False)
        self.masked_lm = MaskedLMHead(config)
        self.task = ClassificationHead(config)
        initialize(self, seed, config.initializer_range)

    def forward(self, batch: TextBatch) -> Tensor:
        """Hidden states of a batch: (B, T) -> (B, T, hidden)."""
        hidden: Tensor = self.body(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            token_type_ids=batch.token_type_ids,
        ).last_hidden_state
        return hidden

    def masked_logits(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Vocabulary logits at the masked positions only: the rest would be thrown away.

        (B, T, hidden) and (M,) -> (M, vocabulary)
        """
        chosen = hidden.flatten(0, 1)[positions]  # (B * T, hidden) -> (M, hidden)
        logits: Tensor = self.masked_lm(chosen, self.body.embeddings.word_embeddings.weight)
        return logits

    def reset_task_head(self, seed: int) -> None:
        """Give the task head new random weights, as TLM does between its two stages."""
        initialize(self.task, seed, self.config.initializer_range)

    def set_dropout(self, probability: float) -> None:
        """Set every dropout of body and heads, attention included."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = probability


def build_network(
    settings: ModelSettings, *, vocabulary: int, pad_id: int, labels: tuple[str, ...], seed: int
) -> Network:
    """The network that the settings describe, with random weights."""
    config = bert_config(
        shape_of(settings),
        vocabulary=vocabulary,
        pad_id=pad_id,
        positions=settings.max_position_embeddings,
        dropout=settings.dropout,
        labels=labels,
    )
    return Network(config, seed)


def bert_config(
    shape: Shape, *, vocabulary: int, pad_id: int, positions: int, dropout: float, labels: tuple[str, ...]
) -> BertConfig:
    """A BERT configuration that names the task's labels."""
    sizes: dict[str, Any] = vars(shape)
    return BertConfig(
        vocab_size=vocabulary,
        pad_token_id=pad_id,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        attn_implementation="sdpa",
        **sizes,
    )


@torch.no_grad()
def initialize(module: nn.Module, seed: int, deviation: float) -> None:
    """BERT's initialisation, stated here so that no library version can change it: N(0, .02), norms 1, biases 0."""
    random = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight.normal_(0.0, deviation, generator=random)
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx].zero_()
        bias = getattr(part, "bias", None)
        if isinstance(bias, Tensor):
            bias.zero_()
