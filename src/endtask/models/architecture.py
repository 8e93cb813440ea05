"""What an architecture provides: Hugging Face's own modules, and the names that weights have there."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from endtask.models.batch import TextBatch
from endtask.models.sizes import Shape


class TaskHead(Protocol):
    """A classification head: hidden states and their attention mask in, class logits out."""

    def __call__(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, T, hidden) and (B, T) -> (B, classes)"""
        ...


class Architecture(Protocol):
    """One file per architecture implements this."""

    name: str
    input_names: tuple[str, ...]
    """What the stock model takes from its tokenizer."""
    to_classifier: dict[str, str]
    """Prefixes of our weights' names -> prefixes in the stock sequence classifier."""
    to_masked_lm: dict[str, str]
    """The same for the stock masked language model."""

    def config(
        self, shape: Shape, *, vocabulary: int, special_ids: dict[str, int], positions: int, dropout: float
    ) -> Any:
        """The Hugging Face configuration, labels left out."""
        ...

    def body(self, config: Any) -> nn.Module:
        """The encoder without any head."""
        ...

    def embeddings(self, body: nn.Module) -> nn.Embedding:
        """The word embeddings, which the masked-LM head shares."""
        ...

    def hidden_states(self, body: nn.Module, batch: TextBatch) -> Tensor:
        """(B, T) -> (B, T, hidden)"""
        ...

    def masked_lm_transform(self, config: Any) -> nn.Module:
        """The part of the masked-LM head before the output matrix."""
        ...

    def task_head(self, config: Any) -> nn.Module:
        """The head of the stock sequence classifier, as a `TaskHead`."""
        ...

    def classifier(self, config: Any) -> Any:
        """An empty stock sequence classifier."""
        ...

    def masked_lm(self, config: Any) -> Any:
        """An empty stock masked language model."""
        ...
