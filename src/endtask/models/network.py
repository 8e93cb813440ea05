"""The network under training: a body shared by all objectives and one head per objective.

Body and heads are Hugging Face's own modules, so that what is trained is what is saved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from endtask.models.architecture import Architecture
from endtask.models.batch import TextBatch
from endtask.models.bert import Bert
from endtask.models.modernbert import ModernBert
from endtask.models.sizes import shape_of
from endtask.settings import ModelSettings

ARCHITECTURES: dict[str, Architecture] = {"bert": Bert(), "modernbert": ModernBert()}


class MaskedLMHead(nn.Module):
    """A transform and a bias; the output matrix is the body's word embeddings, lent at each call."""

    def __init__(self, transform: nn.Module, vocabulary: int) -> None:
        super().__init__()
        self.transform = transform
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        """Vocabulary logits of the given positions: (M, hidden) -> (M, vocabulary)."""
        return functional.linear(self.transform(hidden), embeddings, self.bias)


class Network(nn.Module):
    """Body, masked-LM head and task head, with explicit random weights."""

    def __init__(self, architecture: Architecture, config: Any, seed: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.config = config
        self.body = architecture.body(config)
        self.masked_lm = MaskedLMHead(architecture.masked_lm_transform(config), config.vocab_size)
        self.task = architecture.task_head(config)
        initialize(self, seed, config.initializer_range)

    def forward(self, batch: TextBatch) -> Tensor:
        """Hidden states of a batch: (B, T) -> (B, T, hidden)."""
        return self.architecture.hidden_states(self.body, batch)

    def masked_logits(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Vocabulary logits at the masked positions only: the rest would be thrown away.

        (B, T, hidden) and (M,) -> (M, vocabulary)
        """
        chosen = hidden.flatten(0, 1)[positions]  # (B * T, hidden) -> (M, hidden)
        logits: Tensor = self.masked_lm(chosen, self.architecture.embeddings(self.body).weight)
        return logits

    def task_logits(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        """Class logits: (B, T, hidden) -> (B, classes)."""
        logits: Tensor = self.task(hidden, batch.attention_mask)
        return logits

    def reset_task_head(self, seed: int) -> None:
        """Give the task head new random weights, as TLM does between its two stages."""
        initialize(self.task, seed, self.config.initializer_range)

    def set_dropout(self, probability: float) -> None:
        """Set every dropout of body and heads."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = probability


def build_network(
    settings: ModelSettings, *, vocabulary: int, special_ids: dict[str, int], labels: tuple[str, ...], seed: int
) -> Network:
    """The network that the settings describe, with random weights; its configuration names the task's labels."""
    architecture = ARCHITECTURES[settings.architecture]
    config = architecture.config(
        shape_of(settings),
        vocabulary=vocabulary,
        special_ids=special_ids,
        positions=settings.max_position_embeddings,
        dropout=settings.dropout,
    )
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: number for number, label in enumerate(labels)}
    return Network(architecture, config, seed)


@torch.no_grad()
def initialize(module: nn.Module, seed: int, deviation: float) -> None:
    """BERT's initialisation, stated here so that no library version can change it: N(0, .02), norms 1, biases 0."""
    random = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            # Drawn on the CPU wherever the module lies: its generator serves no other device.
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0.0, deviation, generator=random))
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            part.weight[part.padding_idx].zero_()
        bias = getattr(part, "bias", None)
        if isinstance(bias, Tensor):
            bias.zero_()
