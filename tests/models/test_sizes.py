"""Encoder sizes by name and number."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.errors import InputError
from endtask.models.sizes import SIZES, Shape, shape_of
from endtask.settings import ModelSettings


def shape(**values: Any) -> Shape:
    return shape_of(ModelSettings.model_validate(values))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_every_named_size_has_a_whole_number_of_even_heads(architecture: str, size: str) -> None:
    found = shape(architecture=architecture, size=size)
    assert found.hidden_size % (2 * found.num_attention_heads) == 0


def test_base_is_berts() -> None:
    assert shape(architecture="bert", size="base") == Shape(768, 12, 12, 3072)


def test_a_gated_layer_is_narrower() -> None:
    assert shape(architecture="modernbert", size="base").intermediate_size == 1152


def test_numbers_override_the_name() -> None:
    found = shape(size="base", hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=50)
    assert found == Shape(32, 3, 4, 50)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(InputError, match=r"key 'model.hidden_size': 100 is not a multiple .* 3"):
        shape(hidden_size=100, num_attention_heads=3)


def test_rotary_heads_must_be_even() -> None:
    assert shape(architecture="bert", hidden_size=6, num_attention_heads=2).hidden_size == 6
    with pytest.raises(InputError, match=r"key 'model.hidden_size': 2 heads of 3 numbers"):
        shape(architecture="modernbert", hidden_size=6, num_attention_heads=2)
