"""Encoder sizes by name, and what a size costs."""

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
    "tiny": Shape(128, 2, 2, 512),
    "mini": Shape(256, 4, 4, 1024),
    "small": Shape(512, 4, 8, 2048),
    "medium": Shape(512, 8, 8, 2048),
    "base": Shape(768, 12, 12, 3072),
}


def shape_of(settings: ModelSettings) -> Shape:
    """The named size with the settings' explicit numbers put in.

    >>> shape_of(ModelSettings(size="tiny", num_hidden_layers=1))
    Shape(hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=512)
    """
    named = SIZES[settings.size]
    shape = Shape(
        settings.hidden_size or named.hidden_size,
        settings.num_hidden_layers or named.num_hidden_layers,
        settings.num_attention_heads or named.num_attention_heads,
        settings.intermediate_size or named.intermediate_size,
    )
    if shape.hidden_size % shape.num_attention_heads:
        raise InputError(
            f"{shape.hidden_size} is not a multiple of model.num_attention_heads {shape.num_attention_heads}",
            key="model.hidden_size",
        )
    return shape


def parameter_count(shape: Shape, vocabulary: int, positions: int) -> int:
    """Parameters of the body with its masked-LM head, embeddings shared; the N of the 6ND cost rule."""
    h, f = shape.hidden_size, shape.intermediate_size
    embeddings = (vocabulary + positions + 2) * h + 2 * h
    layer = 4 * (h * h + h) + (h * f + f) + (f * h + h) + 4 * h
    masked_lm_head = h * h + h + 2 * h + vocabulary
    return embeddings + shape.num_hidden_layers * layer + masked_lm_head
