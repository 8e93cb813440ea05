"""What an architecture provides: its modules, and the names that weights have in Hugging Face's classes."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from endtask.encoders.attention import Backend
from endtask.encoders.batch import TextBatch
from endtask.encoders.sizes import Shape

Pooling = Literal["cls", "mean", "entity_markers"]


class Architecture(Protocol):
    """One file per architecture implements this."""

    name: str
    padded: bool
    """Whether the backend `padded` is a padded table for the whole encoder; else for attention alone."""
    backends: tuple[Backend, ...]
    """How attention can stay inside each text, the fastest way first."""
    gated: bool
    """Whether feed-forward layers have a second input matrix."""
    input_names: tuple[str, ...]
    """What the stock model takes from its tokenizer."""
    poolings: tuple[Pooling, ...]
    """What the classification head can read, its usual one first."""
    to_classifier: dict[str, str]
    """Prefixes of our weights' names -> prefixes in the stock sequence classifier."""
    to_tagger: dict[str, str]
    """The same for the stock token classifier."""
    to_masked_lm: dict[str, str]
    """The same for the stock masked language model."""

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
        """The Hugging Face configuration, labels left out."""
        ...

    def adopt(self, config: Any, *, dropout: float, pooling: Pooling) -> None:
        """Put into a checkpoint's configuration what the settings decide even there."""
        ...

    def longest_text(self, config: Any) -> int:
        """How many tokens of a text the model can read."""
        ...

    def pooling(self, config: Any) -> Pooling:
        """What the classification head reads."""
        ...

    def encoder(self, config: Any) -> nn.Module:
        """The encoder without any head."""
        ...

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        """The word embeddings, which the masked-LM head shares."""
        ...

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: Backend, dtype: torch.dtype) -> Tensor:
        """One vector per token: (N, hidden)."""
        ...

    def masked_lm_transform(self, config: Any) -> nn.Module:
        """The part of the masked-LM head before the output matrix."""
        ...

    def task_head(self, config: Any) -> nn.Module:
        """The head of the stock sequence classifier: pooled vectors (S, hidden) -> logits (S, classes)."""
        ...

    def token_head(self, config: Any) -> nn.Module:
        """The head of the stock token classifier: one vector per token (N, hidden) -> logits (N, tags)."""
        ...

    def tagger(self, config: Any) -> Any:
        """An empty stock token classifier."""
        ...

    def classifier(self, config: Any) -> Any:
        """An empty stock sequence classifier."""
        ...

    def masked_lm(self, config: Any) -> Any:
        """An empty stock masked language model."""
        ...


def markers_of(config: Any) -> tuple[int, ...]:
    """The tokens that the classification head reads alone, where it does: marks around what a text is asked about."""
    return tuple(getattr(config, "marker_token_ids", None) or ())


def as_table(batch: TextBatch, pad_id: int) -> dict[str, Tensor]:
    """A batch as a padded table, for encoders that want one: (S, T) each."""
    assert batch.grid is not None
    tokens = len(batch.input_ids)
    present = batch.grid < tokens
    where = batch.grid.clamp(max=tokens - 1)
    input_ids = torch.where(present, batch.input_ids[where], pad_id)
    types = torch.where(present, batch.token_type_ids[where], 0)
    return {"input_ids": input_ids, "attention_mask": present.long(), "token_type_ids": types}


def through_table(encoder: nn.Module, batch: TextBatch, *, names: tuple[str, ...], pad_id: int) -> Tensor:
    """One vector per token from an encoder over padded tables, which takes the inputs `names`: (N, hidden)."""
    table = as_table(batch, pad_id)
    hidden: Tensor = encoder(**{name: table[name] for name in names}).last_hidden_state
    return from_table(hidden, batch)


def from_table(hidden: Tensor, batch: TextBatch) -> Tensor:
    """The vectors of a padded table laid end to end: (S, T, hidden) -> (N, hidden); without a grid (1, N, hidden)."""
    if batch.grid is None:
        return hidden[0]
    cells = batch.text_ids * hidden.shape[1] + batch.position_ids
    return hidden.flatten(0, 1)[cells]
