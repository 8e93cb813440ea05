"""Objectives of one network that each have a dropout of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from endtask.config import BatchSize
from endtask.encoders.network import MASKED_LM, Network
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.training.pretrain_phase import DropoutOverride
from tests.tiny import make_masking, make_network, make_packed


def objectives(network: Network, folder: Path, rates: tuple[float, ...]) -> list[DropoutOverride]:
    texts, found = make_packed(folder), []
    for number, rate in enumerate(rates):
        name = f"o{number}"
        size = BatchSize.parse("8")
        stream = TextStream(name, texts, network, batch_size=size, seed=0, masking=make_masking())
        found.append(DropoutOverride(MaskedLM(name, stream), rate))
    return found


def losses(objective: DropoutOverride, network: Network) -> list[float]:
    batch = objective.batch(0)
    return [objective.loss(network, batch).total.item() for _ in range(3)]


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_each_is_read_with_its_own(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture, dropout=0.5).train()
    without, with_dropout = objectives(network, tmp_path, (0.0, 0.3))
    for _ in range(2):
        assert len(set(losses(without, network))) == 1
        assert len(set(losses(with_dropout, network))) == 3


def test_it_is_the_same_objective_otherwise(tmp_path: Path) -> None:
    network = make_network()
    (wrapped,) = objectives(network, tmp_path, (0.0,))
    inner = wrapped.objective
    assert (wrapped.name, wrapped.heads, wrapped.passes) == (inner.name, inner.heads, inner.passes)
    batch = wrapped.batch(1)
    assert wrapped.flops(network, batch) == inner.flops(network, inner.batch(1)) > 0
    assert wrapped.stream.positions(1).tolist() == inner.stream.positions(1).tolist()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_rates_that_take_turns_are_compiled_once_each(tmp_path: Path) -> None:
    torch._dynamo.reset()
    network, counter = make_network().train(), CompileCounter()
    network.fixed_shapes = True
    for part in (network.encoder, network.heads[MASKED_LM]):
        part.compile(dynamic=False, backend=counter)
    several = objectives(network, tmp_path, (0.0, 0.1, 0.3))
    compiled = []
    for step in range(3):
        for objective in several:
            objective.loss(network, objective.batch(step)).total.backward()  # type: ignore[no-untyped-call]
        compiled.append(counter.frame_count)
    assert compiled == [4, 4, 4], "a body for each rate, and one head"
    torch._dynamo.reset()
