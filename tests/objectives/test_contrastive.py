"""The contrastive loss against a loop over pairs, and as a term of fine-tuning's loss."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED
from endtask.encoders.network import Network
from endtask.objectives.contrastive import contrastive_loss
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask, FinetuningLoss
from endtask.objectives.task_losses import Classification
from endtask.tokenization.packed_texts import PackedTexts
from tests.tiny import ARCHITECTURES, make_labels, make_network, make_packed, shake
from tests.training.test_optimizer import NoReading


def by_loop(vectors: list[list[float]], labels: list[int]) -> float:
    """The mean squared error over pairs of equal classes, and over those of different ones, half each."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for one, other in combinations([row for row in range(len(labels)) if labels[row] != IGNORED], 2):
        dot = math.fsum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))
        cosine = dot / (math.hypot(*vectors[one]) * math.hypot(*vectors[other]))
        errors[labels[one] == labels[other]].append((cosine - (labels[one] == labels[other])) ** 2)
    return sum(sum(each) / len(each) for each in errors.values() if each) / 2


@given(st.lists(st.sampled_from([0, 1, 2, IGNORED]), max_size=9), st.integers(0, 99))
def test_every_pair_counts_once(labels: list[int], seed: int) -> None:
    vectors = torch.randn(len(labels), 5, generator=torch.Generator().manual_seed(seed))
    found = contrastive_loss(vectors, torch.tensor(labels, dtype=torch.int64)).item()
    assert found == pytest.approx(by_loop(vectors.tolist(), labels), rel=1e-4, abs=1e-6)


def test_length_of_vectors_and_order_of_texts_do_not_matter() -> None:
    vectors, labels = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    expected = contrastive_loss(vectors, labels)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert contrastive_loss(vectors[order], labels[order]).allclose(expected)
    assert contrastive_loss(vectors * torch.arange(1, 8)[:, None], labels).allclose(expected)


def test_bfloat16_around_it_does_not_round_cosines() -> None:
    vectors = 1 + 0.01 * torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
    labels = [0, 0, 1, 1, 2, 2]
    with torch.autocast("cpu", torch.bfloat16):
        found = contrastive_loss(vectors, torch.tensor(labels)).item()
    assert found == pytest.approx(by_loop(vectors.tolist(), labels), rel=1e-5)


def make(texts: PackedTexts, network: Network, **options: float) -> FinetunedTask:
    stream = TextStream("task", texts, network, batch_size=BatchSize.parse("8"), seed=3)
    return FinetunedTask(Classification("task", stream, make_labels()), FinetuningLoss(**options))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rdrop", [0.0, 1.5])
def test_it_is_added_to_the_loss_of_all_readings(architecture: str, rdrop: float, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture, dropout=0.3)).train(), make_packed(tmp_path)
    with_term, without = make(texts, network, rdrop=rdrop, contrastive=2.0), make(texts, network, rdrop=rdrop)
    batch = with_term.batch(0)
    read = batch.twice() if rdrop else batch
    losses = []
    for objective in (with_term, without):
        torch.manual_seed(5)
        losses.append(objective.loss(network, batch))
    torch.manual_seed(5)
    vectors = network.pooled(network(read), read)
    assert read.labels is not None
    expected = by_loop(vectors.tolist(), read.labels.tolist())
    assert losses[0].parts["contrastive"].item() == pytest.approx(expected, rel=1e-3)
    assert losses[0].parts["task"].item() == pytest.approx(losses[1].parts["task"].item(), rel=1e-5)
    added = losses[0].total - losses[1].total
    assert added.item() == pytest.approx(2.0 * expected * batch.text_share, rel=1e-3)


def test_steps_bring_texts_of_one_class_together(tmp_path: Path) -> None:
    network, texts = shake(make_network()), make_packed(tmp_path)  # vectors that are all alike have no gradient
    objective = make(texts, network, contrastive=1.0)
    batch = objective.batch(0)
    assert batch.labels is not None
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    before = objective.loss(network, batch).parts["contrastive"].item()
    for _ in range(30):
        optimizer.zero_grad()
        objective.loss(network, batch).total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    unit = functional.normalize(network.pooled(network(batch), batch), dim=-1)
    equal = batch.labels[:, None] == batch.labels[None, :]
    cosines = unit @ unit.T
    assert objective.loss(network, batch).parts["contrastive"].item() < 0.5 * before
    assert cosines[equal].min() > cosines[~equal].mean()


def test_nothing_is_read_on_the_host(tmp_path: Path) -> None:
    network, texts = make_network(), make_packed(tmp_path)
    objective = make(texts, network, contrastive=1.0)
    batch = objective.batch(0)
    with NoReading():
        objective.loss(network, batch).total.backward()  # type: ignore[no-untyped-call]
    assert network.embeddings.grad is not None
