"""Encoder sizes by name."""

from __future__ import annotations

from dataclasses import dataclass

from endtask.errors import InputError
from endtask.settings import ModelSettings


@dataclass(frozen=True)
class Shape:
    """The numbers that fix an encoder's shape."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int


SIZES = {
    "tiny": (128, 2, 2),
    "mini": (256, 4, 4),
    "small": (512, 4, 8),
    "medium": (512, 8, 8),
    "base": (768, 12, 12),
}
"""Hidden size, layers, attention heads."""

_GATED_SHARE = 3 / 8  # a gated feed-forward layer has two input matrices; 1.5 x hidden costs about what 4 x does


def shape_of(settings: ModelSettings) -> Shape:
    """The named size with the settings' explicit numbers put in.

    >>> shape_of(ModelSettings(architecture="bert", size="tiny", num_hidden_layers=1))
    Shape(hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=512)
    """
    named_hidden, named_layers, named_heads = SIZES[settings.size]
    hidden = settings.hidden_size or named_hidden
    usual = 4 * hidden if settings.architecture == "bert" else int(4 * hidden * _GATED_SHARE)
    shape = Shape(
        hidden,
        settings.num_hidden_layers or named_layers,
        settings.num_attention_heads or named_heads,
        settings.intermediate_size or usual,
    )
    if shape.hidden_size % shape.num_attention_heads:
        raise InputError(
            f"{shape.hidden_size} is not a multiple of model.num_attention_heads {shape.num_attention_heads}",
            key="model.hidden_size",
        )
    if settings.architecture == "modernbert" and shape.hidden_size // shape.num_attention_heads % 2:
        raise InputError(
            f"{shape.num_attention_heads} heads of {shape.hidden_size // shape.num_attention_heads} numbers each; "
            "rotary positions turn them in pairs and need an even number",
            key="model.hidden_size",
        )
    return shape
