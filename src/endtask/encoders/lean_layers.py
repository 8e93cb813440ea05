"""The layers of `lean`: ModernBERT's architecture over packed texts, with global layers only and no biases.

Modules and weights have ModernBERT's names, so that a saved model is a stock one. As in ModernBERT, the embeddings are
normalised, the first layer has no norm before attention, and a norm follows the last layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from endtask.encoders.attention import AttentionMetadata, attend


class Dropout(nn.Dropout):
    """Dropout whose masks take a sixth of the time of torch's on a CPU: four 16-bit numbers from each random draw.

    The probability is a multiple of 2**-16 there. The draws come from torch's generator, as they do otherwise.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        """(...) -> the same"""
        if hidden.device.type != "cpu" or not self.training or not 0.0 < self.p < 1.0 or torch.compiler.is_compiling():
            return super().forward(hidden)
        count = hidden.numel()
        draws = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
        dropped = round(self.p * 2**16)
        mask = draws.view(torch.int16)[:count].view(hidden.shape) >= dropped - 2**15
        return hidden * mask.to(hidden.dtype).mul_(2**16 / (2**16 - dropped))


class Embeddings(nn.Module):
    """Word embeddings and a norm; positions are rotary."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.norm = _norm(config)
        self.drop = Dropout(config.embedding_dropout)

    def forward(self, input_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """(N,) -> (N, hidden) in `dtype`"""
        out: Tensor = self.drop(self.norm(self.tok_embeddings(input_ids))).to(dtype)
        return out


class Attention(nn.Module):
    """Self-attention within each text, with rotary positions."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, metadata: AttentionMetadata) -> Tensor:
        """(N, hidden) -> (N, hidden)"""
        out: Tensor = self.Wo(self.mix(hidden, cosine, sine, metadata))
        return out

    def mix(self, hidden: Tensor, cosine: Tensor, sine: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Attention before the output projection: (N, hidden) -> (N, hidden)"""
        # Three products instead of one: concatenating three gradients in the backward pass would take longer than one
        # product saves (as in the feed-forward block).
        query, key, value = (
            functional.linear(hidden, weight).view(len(hidden), self.heads, -1)  # (N, hidden) -> (N, heads, size)
            for weight in self.Wqkv.weight.chunk(3)
        )
        mixed = attend(rotate(query, cosine, sine), rotate(key, cosine, sine), value, metadata)
        return mixed.flatten(1)  # (N, heads, size) -> (N, hidden)


class FeedForward(nn.Module):
    """A gated feed-forward block (GeGLU)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.drop = Dropout(config.mlp_dropout)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, hidden) -> (N, hidden)"""
        value, gate = (functional.linear(hidden, weight) for weight in self.Wi.weight.chunk(2))  # (N, intermediate)
        out: Tensor = self.Wo(self.drop(functional.gelu(value) * gate))
        return out


class Layer(nn.Module):
    """Attention and feed-forward block, each with a norm before it and a residual connection."""

    def __init__(self, config: Any, first: bool) -> None:
        super().__init__()
        self.attn_norm = nn.Identity() if first else _norm(config)
        self.attn = Attention(config)
        self.mlp_norm = _norm(config)
        self.mlp = FeedForward(config)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, metadata: AttentionMetadata) -> Tensor:
        """(N, hidden) -> (N, hidden)"""
        return self.after_attention(hidden + self.attn(self.attn_norm(hidden), cosine, sine, metadata))

    def after_attention(self, hidden: Tensor) -> Tensor:
        """The feed-forward block, which is independent of other positions: (..., hidden) -> (..., hidden)"""
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out


class LeanEncoder(nn.Module):
    """Token ids to one vector per token."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, first=number == 0) for number in range(config.num_hidden_layers))
        self.final_norm = _norm(config)
        size = config.hidden_size // config.num_attention_heads
        cosine, sine = rotary_table(size, config.max_position_embeddings, rotary_base(config))
        self.cosine: Tensor  # (positions, size)
        self.sine: Tensor
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, metadata: AttentionMetadata, dtype: torch.dtype
    ) -> Tensor:
        """(N,) -> (N, hidden) in `dtype`; without it autocast would keep the residual stream in float32."""
        cosine, sine = self.angles(position_ids)
        hidden = self.embeddings(input_ids, dtype)
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine, metadata)
        out: Tensor = self.final_norm(hidden)
        return out

    def angles(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of positions: (N,) -> (N, 1, size) each."""
        return self.cosine[position_ids, None], self.sine[position_ids, None]


class PredictionHead(nn.Module):
    """ModernBERT's masked-LM head before the output matrix: dense, GELU, norm."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.norm = _norm(config)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> (..., hidden)"""
        out: Tensor = self.norm(functional.gelu(self.dense(hidden)))
        return out


def rotate(part: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate pairs of numbers by angles that grow with the position (RoFormer, Eq. 34): (N, heads, size)."""
    wide = part.to(torch.promote_types(part.dtype, torch.float32))
    return (wide * cosine + wide.roll(wide.shape[-1] // 2, dims=-1) * sine).to(part.dtype)


def rotary_table(size: int, positions: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of all positions, (positions, size) each; the first half of the sines is negative.

    Number i is paired with number i + size / 2, and (a, b) becomes (a cos - b sin, b cos + a sin).
    """
    frequencies = 1.0 / (base ** (torch.arange(0, size, 2, dtype=torch.float) / size))  # (size / 2,)
    angles = torch.arange(positions, dtype=torch.float)[:, None] * frequencies
    return torch.cat((angles.cos(), angles.cos()), dim=-1), torch.cat((-angles.sin(), angles.sin()), dim=-1)


def rotary_base(config: Any) -> float:
    """Return the base of the angles in global layers, under the key of this transformers release."""
    parameters = getattr(config, "rope_parameters", None)
    if parameters:
        return float(parameters["full_attention"]["rope_theta"])
    return float(config.global_rope_theta)


class Norm(nn.LayerNorm):
    """A layer norm that returns the precision of its input; under autocast it computes in float32."""

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., hidden) -> the same"""
        return super().forward(hidden).to(hidden.dtype)


def _norm(config: Any) -> Norm:
    return Norm(config.hidden_size, eps=config.norm_eps, bias=False)
