"""Encoder sizes by name and by number."""

from __future__ import annotations

from typing import Any

import pytest

from endtask.config import ModelSettings
from endtask.config.model import SIZES
from endtask.encoders.base import Shape, shape_of
from endtask.encoders.modernbert import gated_width
from endtask.errors import InputError


def shape(**values: Any) -> Shape:
    return shape_of(ModelSettings.model_validate(values))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("architecture", ["lean", "bert", "roberta", "modernbert"])
def test_every_named_size_has_a_whole_number_of_even_heads(architecture: str, size: str) -> None:
    found = shape(architecture=architecture, size=size)
    assert found.hidden_size % (2 * found.num_attention_heads) == 0


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_base_and_large_are_berts(architecture: str) -> None:
    assert shape(architecture=architecture, size="base") == Shape(768, 12, 12, 3072)
    assert shape(architecture=architecture, size="large") == Shape(1024, 24, 16, 4096)


def test_names_go_from_tiny_to_large() -> None:
    weights = [hidden**2 * layers for hidden, layers, _ in SIZES.values()]
    assert weights == sorted(weights)
    assert (SIZES["tiny"], SIZES["large"]) == ((128, 2, 2), (1024, 24, 16))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("architecture", ["lean", "modernbert"])
def test_a_gated_block_has_about_the_weights_of_berts(architecture: str, size: str) -> None:
    gated, plain = shape(architecture=architecture, size=size), shape(architecture="bert", size=size)
    assert gated.intermediate_size == gated_width(gated.hidden_size)
    assert gated.intermediate_size % 128 == 0
    berts = 2 * plain.hidden_size * plain.intermediate_size
    assert berts <= 3 * gated.hidden_size * gated.intermediate_size < berts + 3 * 128 * gated.hidden_size


@pytest.mark.parametrize("size", ["256x1", "512x2", "768x3"])
def test_sizes_in_numbers_say_what_they_are_and_have_heads_of_64(size: str) -> None:
    found = shape(size=size)
    assert size == f"{found.hidden_size}x{found.num_hidden_layers}"
    assert found.hidden_size == 64 * found.num_attention_heads


@pytest.mark.parametrize(("size", "message"), [("tinny", "tiny"), ("100x2", "multiple of 64"), ("256x0", "256x3")])
def test_other_sizes_are_refused(size: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shape(size=size)


def test_numbers_override_the_name() -> None:
    found = shape(size="base", hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=50)
    assert found == Shape(32, 3, 4, 50)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(InputError, match=r"key 'model.hidden_size': 100 is not a multiple .* 3"):
        shape(hidden_size=100, num_attention_heads=3)


def test_rotary_heads_must_be_even() -> None:
    assert shape(architecture="bert", hidden_size=6, num_attention_heads=2).hidden_size == 6
    with pytest.raises(InputError, match=r"key 'model.hidden_size': 2 heads of width 3"):
        shape(architecture="modernbert", hidden_size=6, num_attention_heads=2)
