"""The split encoder gives the rows that hooks on every use of the weight give."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.encoders.batch import BatchShape, TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import Network
from endtask.gradients import engine as engine_module
from endtask.gradients.engine import (
    GradientEngine,
    TextLosses,
    layer_to_split,
    masked_lm_losses,
    reading_of,
    task_losses,
)
from endtask.gradients.rows import Gradients, LinearRows, average
from endtask.gradients.targets import products
from tests.gradients.batches import labelled_batch, make_network, masked_batch

LENGTHS = st.lists(st.integers(2, 9), min_size=1, max_size=5)
FIXED_SHAPE = BatchShape(tokens=50, texts=8, masked=40)


def caught(network: Network, layers: list[str], batch: TextBatch, losses: TextLosses) -> Gradients:
    """By the path for any weights."""
    engine = GradientEngine(network, layers)
    engine._split = None
    return engine.gradients(batch, losses)


def only_rows(gradients: Gradients) -> LinearRows:
    ((rows,),) = gradients.blocks.values()
    assert isinstance(rows, LinearRows)
    return rows


@settings(max_examples=15)
@given(
    lengths=LENGTHS,
    seed=st.integers(0, 1000),
    layer=st.sampled_from(["quarter", "half", "last"]),
    pooling=st.sampled_from(["cls", "mean"]),
    fixed_shape=st.sampled_from([None, FIXED_SHAPE]),
    masked=st.booleans(),
)
def test_the_same_gradients_as_by_catching(
    lengths: list[int], seed: int, layer: str, pooling: str, fixed_shape: BatchShape | None, masked: bool
) -> None:
    network = make_network("lean", pooling=pooling, layers=3)
    make: Callable[..., TextBatch] = masked_batch if masked else labelled_batch
    losses = masked_lm_losses if masked else task_losses
    batch = make(network, lengths, seed=seed, fixed_shape=fixed_shape)
    ours = GradientEngine(network, [layer]).gradients(batch, losses)
    theirs = caught(network, [layer], batch, losses)
    assert ours.blocks.keys() == theirs.blocks.keys()
    assert ours.count == theirs.count
    together = products(theirs, theirs)
    assert torch.allclose(products(ours, theirs), together, rtol=1e-8, atol=1e-12)
    owners = only_rows(ours).owners
    assert bool((owners.diff() >= 0).all())
    assert set(owners.tolist()) <= set(range(len(lengths)))
    assert ours.most_rows in (None, int(torch.bincount(owners, minlength=1).max()))
    assert (ours.most_rows is not None) == (masked and layer == "last")
    if ours.most_rows is not None:
        assert average([ours, ours]).most_rows == 2 * ours.most_rows


def test_rows_of_a_room_are_those_that_the_loss_reads() -> None:
    network = make_network("lean", pooling="cls")
    masked, labelled = (
        masked_batch(network, [9, 6], fixed_shape=FIXED_SHAPE),
        labelled_batch(network, [9, 6], fixed_shape=FIXED_SHAPE),
    )
    engine = GradientEngine(network)
    assert len(only_rows(engine.gradients(masked, masked_lm_losses)).owners) == masked.masked < FIXED_SHAPE.masked
    assert only_rows(engine.gradients(labelled, task_losses)).owners.tolist() == [0, 1]


def test_what_a_loss_reads_is_known_for_the_heads_of_one_position() -> None:
    batch = labelled_batch(make_network("lean"), [4, 3])

    def own_loss(network: Network, hidden: torch.Tensor, batch: TextBatch) -> torch.Tensor:
        return hidden.sum(1)

    assert reading_of(task_losses, make_network("lean", pooling="mean"), batch) is None
    assert reading_of(own_loss, make_network("lean", pooling="cls"), batch) is None
    reading = reading_of(task_losses, make_network("lean", pooling="cls"), batch)
    assert reading is not None
    assert reading.positions.tolist() == [0, 4]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("layer", "dtype"), [("last", torch.bfloat16), ("half", torch.float32)])
def test_compiled_parts_are_one_graph_each_and_give_the_same(
    layer: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    def traced(function: Callable[..., Any]) -> Any:
        compiled.append(function)
        # The whole compiler takes a minute here; a break in the graph or a wrong trace shows without it.
        return compile_with(function)

    compile_with = partial(torch.compile, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(engine_module.torch, "compile", traced)
    network = make_network("lean", dtype=torch.float32, layers=2)
    network.dtype = dtype
    context = DeviceContext(torch.device("cpu"), dtype)
    fast, plain = (GradientEngine(network, [layer], context, compiled=wanted) for wanted in (True, False))
    assert compiled == [engine_module.lower, engine_module.upper]
    for lengths in ([9, 9, 9], [7, 4]):
        batch = masked_batch(network, lengths)
        one, other = (engine.gradients(batch, masked_lm_losses) for engine in (fast, plain))
        expected = products(other, other)
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        assert torch.allclose(products(one, one), expected, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("architecture", "layers"),
    [
        ("bert", ["last"]),
        ("lean", ["*"]),
        ("lean", ["embedding"]),
        ("lean", ["half", "last"]),
        ("modernbert", ["last"]),
    ],
)
def test_other_weights_are_caught(architecture: str, layers: list[str]) -> None:
    engine = GradientEngine(make_network(architecture, layers=3), layers)
    assert layer_to_split(engine.network, engine.weights) is None
