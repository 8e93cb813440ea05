"""Every number of the settings has bounds: a slip of the keyboard is one line, not a crash of a library."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.config import BatchSize, Budget, SizeBudget, resolve
from endtask.config.budget import TextAmount
from endtask.config.schema import settings_schema
from endtask.config.section import LARGEST, MOST
from endtask.encoders.config_sizes import check_memory
from endtask.errors import InputError
from endtask.training.phase import batches_in_step

ABSURD = (10**13, 3_856_914_681_602_280_259_584, 2.7488145022576316e16, 10**400)


def integers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parts of a JSON schema that are whole numbers, with their places."""
    if isinstance(schema, dict):
        if schema.get("type") == "integer":
            yield place, schema
        for key, inner in schema.items():
            yield from integers(inner, f"{place}/{key}")
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            yield from integers(inner, f"{place}/{number}")


def test_every_whole_number_of_the_schema_is_bounded_on_both_sides() -> None:
    found = dict(integers(settings_schema()))
    assert len(found) > 40
    assert not [place for place, schema in found.items() if not {"minimum", "exclusiveMinimum"} & schema.keys()]
    assert not [place for place, schema in found.items() if not {"maximum", "exclusiveMaximum"} & schema.keys()]


@pytest.mark.parametrize(
    "key",
    [
        "threads",
        "tokenizer.vocab_size",
        "model.num_hidden_layers",
        "model.hidden_size",
        "model.max_position_embeddings",
        "pretrain.gradient_accumulation_steps",
        "pretrain.batch_size",
        "pretrain.max_length",
        "finetune.epochs",
        "retrieve.top_k",
        "select.masks",
        "pretrain.weighting.rho1",
    ],
)
@pytest.mark.parametrize("value", ABSURD)
def test_an_absurd_number_is_one_line_that_names_its_key(key: str, value: float) -> None:
    tree: Any = value
    for name in reversed(key.split(".")):
        tree = {name: tree}
    if key == "select.masks":
        tree["select"]["name"] = "influence"
    with pytest.raises(InputError, match=f"key '{key}'") as caught:
        resolve(tree, where="run.yaml")
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 300, "1e300steps", "1e31flops", "1e31bytes", "1e200h", "9" * 400 + "s"])
def test_an_absurd_amount_is_refused(text: str) -> None:
    for kind in (Budget, SizeBudget, TextAmount, BatchSize):
        with pytest.raises(ValueError, match=r"most there can be|amount|unit|more than zero"):
            kind.parse(text)


@given(st.integers(1, 60), st.integers(1, 40), st.floats(0, 0.99))
def test_batches_grow_from_one_to_all_as_counted_one_by_one(steps: int, accumulation: int, ramp: float) -> None:
    ramp_steps, added = int(steps * ramp), accumulation - 1
    firsts = [-(-ramp_steps * number // added) for number in range(1, added + 1)]
    found = [batches_in_step(step, steps=steps, accumulation=accumulation, ramp_fraction=ramp) for step in range(steps)]
    assert found == [1 + sum(first <= step for first in firsts) for step in range(steps)]
    assert all(before <= after for before, after in pairwise(found))


def test_weights_that_no_memory_holds_are_refused_before_they_are_made() -> None:
    check_memory({"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 512, "vocab_size": 8000})
    with pytest.raises(InputError, match=r"GB of weights"):
        check_memory(LARGEST)
    assert MOST < 2**53  # exact as a float, and in JSON
