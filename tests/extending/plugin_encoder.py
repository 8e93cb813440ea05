"""A user's encoder in one file: word embeddings and convolutions, without attention."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from endtask.config.section import PartConfig
from endtask.encoders.base import Encoder, encoders
from endtask.encoders.batch import TextBatch, as_table, from_table


class ConvolutionLayers(nn.Module):
    """Embeddings and residual convolutions over a padded table."""

    def __init__(self, config: Any, kernel: int) -> None:
        super().__init__()
        width = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.layers = nn.ModuleList(
            nn.Conv1d(width, width, kernel, padding="same") for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return one vector per token: (S, T) -> (S, T, hidden)."""
        present = attention_mask.unsqueeze(1)  # (S, 1, T)
        hidden = self.words(input_ids).transpose(1, 2)  # (S, hidden, T)
        for layer in self.layers:
            hidden = hidden + functional.gelu(layer(hidden * present))
        out: Tensor = self.norm(hidden.transpose(1, 2))
        return out


@encoders.register("convolution")
class Convolution(Encoder):
    """A shallow convolution encoder."""

    padded = True

    class Config(PartConfig):
        """Options beside `model.architecture: convolution`."""

        kernel: int = Field(3, ge=1, description="tokens that a convolution reads")

    def encoder(self, config: Any) -> nn.Module:
        return ConvolutionLayers(config, self.options.kernel)  # type: ignore[attr-defined]

    def embeddings(self, encoder: nn.Module) -> nn.Embedding:
        return encoder.words  # type: ignore[return-value]

    def hidden_states(self, encoder: nn.Module, batch: TextBatch, backend: str, dtype: torch.dtype) -> Tensor:
        pad_id = self.embeddings(encoder).padding_idx or 0
        table = as_table(batch, pad_id)
        return from_table(encoder(table["input_ids"], table["attention_mask"]), batch)
