"""Encoder sizes by name."""

from __future__ import annotations

from dataclasses import dataclass

from endtask.config import ModelSettings
from endtask.errors import InputError


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
    "compact": (384, 6, 6),
    "small": (512, 4, 8),
    "medium": (512, 8, 8),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}
"""Hidden size, layers, attention heads."""

HEAD_SIZE = 64
FLAT_SIZES = {
    f"{hidden}x{layers}": (hidden, layers, hidden // HEAD_SIZE) for hidden in (256, 512, 768) for layers in (1, 2, 3)
}
"""The sizes of "Aligning the Pretraining and Finetuning Objectives", for answers within a few milliseconds."""


def shape_of(settings: ModelSettings) -> Shape:
    """The named size with the settings' explicit numbers put in.

    >>> shape_of(ModelSettings(architecture="bert", size="tiny", num_hidden_layers=1))
    Shape(hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=512)
    """
    named_hidden, named_layers, named_heads = (SIZES | FLAT_SIZES)[settings.size]
    hidden = settings.hidden_size or named_hidden
    encoder = settings.part
    shape = Shape(
        hidden,
        settings.num_hidden_layers or named_layers,
        settings.num_attention_heads or named_heads,
        settings.intermediate_size or encoder.default_intermediate_size(hidden),
    )
    if shape.hidden_size % shape.num_attention_heads:
        raise InputError(
            f"{shape.hidden_size} is not a multiple of model.num_attention_heads {shape.num_attention_heads}",
            key="model.hidden_size",
        )
    encoder.check_shape(shape)
    return shape
