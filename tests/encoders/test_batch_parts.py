"""Parts of a batch: every text is in one part, and losses and gradients of the parts add up to those of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from endtask.config import BatchSize
from endtask.encoders.batch import TextBatch
from endtask.encoders.batch_parts import part_of
from endtask.encoders.network import Network
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification, JointTask, MultiLabel, Regression, Tagging
from endtask.registry import task_types
from tests.tiny import make_labels, make_masking, make_network, make_packed, shake

TEXTS = 24
MakeObjective = Callable[[TextStream], Any]


class SecondTokens:
    """Words of which every text has one, at its second token."""

    def gather(self, positions: NDArray[np.int64], starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], Any]:
        return positions, starts + 1


def tagging(stream: TextStream) -> Tagging:
    words: Any = SecondTokens()
    return Tagging("task", stream, words, make_labels())


OBJECTIVES: dict[str, MakeObjective] = {
    "mlm": lambda stream: MaskedLM("mlm", stream),
    "joint": lambda stream: JointTask(Classification("task", stream, make_labels()), rho2=2.0),
    "windows": lambda stream: Classification("task", stream, make_labels(), text_weights=np.linspace(0.1, 1, TEXTS)),
    "labels": lambda stream: MultiLabel("task", stream, np.eye(3)[make_labels()]),
    "numbers": lambda stream: Regression("task", stream, make_labels().astype(np.float32)),
    "tags": tagging,
}


def gradient_of(objective: Any, network: Network, batch: TextBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parts of a loss, and its gradient on every weight that has one."""
    network.zero_grad()
    loss = objective.loss(network, batch)
    loss.total.backward()
    named = network.named_parameters()
    return dict(loss.parts), {name: weight.grad.clone() for name, weight in named if weight.grad is not None}


def summed(trees: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([tree[name] for tree in trees]).sum(0) for name in trees[0]}


def parts_of(batch: TextBatch, network: Network, count: int) -> list[TextBatch]:
    layout = network.layout(batch.longest)
    return [part_of(batch, number, count, layout, fixed=network.fixed_shapes) for number in range(count)]


@pytest.mark.parametrize("objective_name", OBJECTIVES)
@pytest.mark.parametrize(("architecture", "fixed"), [("lean", False), ("lean", True), ("bert", False), ("bert", True)])
def test_losses_and_gradients_of_the_parts_add_up(
    objective_name: str, architecture: str, fixed: bool, tmp_path: Path
) -> None:
    network = shake(make_network(architecture)).eval()
    network.fixed_shapes = fixed
    if objective_name == "tags":
        network.task_type = task_types.get("token_classification")()
        network.heads["task"] = torch.nn.Linear(16, 3)
    masking = make_masking() if objective_name in ("mlm", "joint") else None
    size = BatchSize.parse("7")
    stream = TextStream("some", make_packed(tmp_path, TEXTS), network, batch_size=size, seed=0, masking=masking)
    objective = OBJECTIVES[objective_name](stream)
    for step, count in ((0, 2), (1, 3), (2, 9)):
        batch = objective.batch(step)
        expected_parts, expected = gradient_of(objective, network, batch)
        found = [gradient_of(objective, network, part) for part in parts_of(batch, network, count)]
        torch.testing.assert_close(summed([parts for parts, _ in found]), expected_parts)
        torch.testing.assert_close(summed([gradient for _, gradient in found]), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("count", [2, 3, 30])
def test_every_text_is_in_one_part(architecture: str, count: int, tmp_path: Path) -> None:
    network = make_network(architecture)
    texts = make_packed(tmp_path, TEXTS)
    stream = TextStream("some", texts, network, batch_size=BatchSize.parse("24"), seed=0)
    batch = stream.batch(0)
    parts = parts_of(batch, network, count)
    counted = [part for part in parts if part.real_share]
    assert sum(part.texts for part in counted) == batch.texts
    assert torch.equal(torch.cat([part.input_ids for part in counted]), batch.input_ids)
    assert torch.equal(torch.cat([part.position_ids for part in counted]), batch.position_ids)
    if count < TEXTS:
        sizes = [part.real_tokens for part in parts]
        assert max(sizes) - min(sizes) <= 2 * int(texts.lengths.max())


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_parts_of_batches_of_a_fixed_shape_have_one_shape(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture)
    network.fixed_shapes = True
    texts = make_packed(tmp_path, TEXTS, pairs=True)
    stream = TextStream("some", texts, network, batch_size=BatchSize.parse("8"), seed=0, masking=make_masking())
    forms = {part.form for step in range(6) for part in parts_of(stream.batch(step), network, 2)}
    assert len(forms) == 1


def test_second_texts_keep_their_types(tmp_path: Path) -> None:
    network = make_network("bert")
    stream = TextStream("some", make_packed(tmp_path, pairs=True), network, batch_size=BatchSize.parse("8"), seed=0)
    batch = stream.batch(0)
    parts = parts_of(batch, network, 3)
    assert batch.token_type_ids.any()
    assert torch.equal(torch.cat([part.token_type_ids for part in parts]), batch.token_type_ids)


def test_a_part_without_labelled_tokens_has_a_finite_loss(tmp_path: Path) -> None:
    network = make_network()
    batch = TextStream("some", make_packed(tmp_path), network, batch_size=BatchSize.parse("6"), seed=0).batch(0)
    labels = torch.full_like(batch.input_ids, -100)
    labels[1] = 2
    first, second = parts_of(replace(batch, token_labels=labels), network, 2)
    assert first.labelled_share == 1
    assert second.labelled_share == 0
    assert second.token_labels is not None
    assert (second.token_labels >= 0).any()
