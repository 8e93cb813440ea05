"""R-Drop against torch's functions on the logits of both readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from endtask.config import BatchSize
from endtask.encoders.batch import BatchShape, TextBatch
from endtask.encoders.network import Network
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask, FinetuningLoss
from endtask.objectives.task_losses import Classification
from endtask.tokenization.packed_texts import PackedTexts
from tests.encoders.layouts import batch_of
from tests.tiny import ARCHITECTURES, make_labels, make_network, make_packed, shake
from tests.training.test_optimizer import NoReading


@pytest.fixture
def texts(tmp_path: Path) -> PackedTexts:
    return make_packed(tmp_path)


def make(texts: PackedTexts, network: Network, *, rdrop: float = 0.0, **options: Any) -> FinetunedTask:
    stream = TextStream("task", texts, network, batch_size=BatchSize.parse("8"), seed=3)
    return FinetunedTask(Classification("task", stream, make_labels(), **options), FinetuningLoss(rdrop=rdrop))


def readings(network: Network, batch: TextBatch, count: int) -> list[Tensor]:
    """Logits of the real texts by one reading under dropout or two, the same ones every time."""
    torch.manual_seed(5)
    read = batch.twice() if count == 2 else batch
    return [logits[: batch.texts] for logits in network.task_logits(network(read), read).chunk(count)]


def loss_of(objective: FinetunedTask, network: Network, batch: TextBatch) -> Any:
    torch.manual_seed(5)
    return objective.loss(network, batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rdrop_is_the_mean_loss_and_half_the_divergence_both_ways(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture, dropout=0.3)).train()
    objective = make(texts, network, rdrop=2.5)
    batch = objective.batch(1)
    one, other = readings(network, batch, 2)
    assert not one.allclose(other)
    assert batch.labels is not None
    labels = batch.labels[: batch.texts]
    each = [functional.cross_entropy(logits, labels) for logits in (one, other)]
    task = torch.stack(each).mean()
    both = [logits.log_softmax(-1) for logits in (one, other)]
    kinds = {"reduction": "batchmean", "log_target": True}
    divergence = (functional.kl_div(*both, **kinds) + functional.kl_div(*both[::-1], **kinds)) / 2  # type: ignore[arg-type]
    loss = loss_of(objective, network, batch)
    assert loss.total.item() == pytest.approx((task + 2.5 * divergence).item(), rel=1e-4)
    assert loss.parts["task"].item() == pytest.approx(task.item(), rel=1e-4)
    assert loss.parts["rdrop"].item() == pytest.approx(divergence.item(), rel=1e-4)
    found = torch.autograd.grad(loss.total, network.embeddings)[0]
    expected = torch.autograd.grad(task + 2.5 * divergence, network.embeddings)[0]
    assert found.allclose(expected, rtol=1e-3, atol=1e-6), "both readings are learned from"


def test_texts_count_in_the_divergence_as_in_the_loss(texts: PackedTexts) -> None:
    """A text of no weight, as those of padding, has no part in either."""
    network = shake(make_network(dropout=0.3)).train()
    weights = np.ones(24, dtype=np.float32)
    objective = make(texts, network, rdrop=1.0, text_weights=weights)
    batch = objective.batch(0)
    assert batch.weights is not None
    without = batch.weights.clone()
    without[0] = 0.0
    losses = [
        loss_of(objective, network, one).parts["rdrop"].item() for one in (batch, replace(batch, weights=without))
    ]
    one, other = readings(network, batch, 2)
    first = ((one.softmax(-1) - other.softmax(-1)) * (one - other)).sum(-1)[0].item()
    assert losses[0] - losses[1] == pytest.approx(0.5 * first / batch.texts, rel=1e-3)


def test_without_dropout_there_is_nothing_to_compare(texts: PackedTexts) -> None:
    network = shake(make_network()).train()
    plain, twice = make(texts, network), make(texts, network, rdrop=4.0)
    batch = plain.batch(0)
    assert loss_of(twice, network, batch).parts["rdrop"].item() == pytest.approx(0.0, abs=1e-9)
    assert loss_of(twice, network, batch).total.item() == pytest.approx(loss_of(plain, network, batch).total.item())


def test_nothing_is_read_on_the_host(texts: PackedTexts) -> None:
    network = shake(make_network(dropout=0.3)).train()
    objective = make(texts, network, rdrop=1.0)
    batch = objective.batch(0)
    with NoReading():
        objective.loss(network, batch).total.backward()  # type: ignore[no-untyped-call]
    assert network.embeddings.grad is not None


def test_both_readings_are_paid_for(texts: PackedTexts) -> None:
    network = make_network(dropout=0.3)
    plain, twice = make(texts, network), make(texts, network, rdrop=1.0)
    batch = plain.batch(0)
    assert (plain.passes, twice.passes) == (1, 2)
    assert twice.flops(network, batch) == 2 * plain.flops(network, batch) > 0


def test_by_default_the_loss_is_bit_for_bit_what_it_was(texts: PackedTexts) -> None:
    network = shake(make_network(dropout=0.3)).train()
    objective = make(texts, network)
    batch = objective.batch(0)
    (logits,) = readings(network, batch, 1)
    assert batch.labels is not None
    assert batch.weights is not None
    each = functional.cross_entropy(logits, batch.labels[: batch.texts], reduction="none")
    loss = loss_of(objective, network, batch)
    assert loss.total.equal((each * batch.weights[: batch.texts]).sum())
    assert loss.parts.keys() == {"task"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("fixed_shape", [None, BatchShape(tokens=640, texts=20)])
def test_two_readings_at_once_are_two_readings(
    architecture: str, fixed_shape: BatchShape | None, texts: PackedTexts
) -> None:
    """Without dropout both halves are what the batch alone gives, in a fixed shape with padding too."""
    network = shake(make_network(architecture)).eval()
    batch = batch_of(network, texts, np.arange(8), fixed_shape)
    alone, both = (network.task_logits(network(one), one) for one in (batch, batch.twice()))
    for half in both.chunk(2):
        assert half[: batch.texts].allclose(alone[: batch.texts], atol=1e-5)
