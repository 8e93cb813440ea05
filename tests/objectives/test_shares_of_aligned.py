"""Aligned objectives in batches of similar lengths: every input counts alike, whatever its batch."""

from __future__ import annotations

import pytest
import torch

from endtask.config import BatchSize
from endtask.objectives.alignment.next_sentence import NextSentence
from endtask.records import Document
from endtask.tokenization.aligned_texts import AlignedTexts, pack_aligned
from tests.aligned_toy import make_tokenizer
from tests.objectives.aligned_network import HEAD, make_aligned_network


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> AlignedTexts:
    """Forty documents of two short sentences and forty of two long ones."""
    short, long = "The river. The stone.", f"The {'river and the green stone ' * 5}. The {'stone and the river ' * 5}."
    documents = [Document(f"d{n}", short if n % 2 else long, "toy") for n in range(80)]
    return pack_aligned(documents, make_tokenizer(), 128, tmp_path_factory.mktemp("uneven"))


def weight_of_each_input(texts: AlignedTexts, size: str) -> dict[int, float]:
    """The summed weights of the inputs of every text over an epoch, by the gradient of the loss; the slow way."""
    network = make_aligned_network(2)
    objective = NextSentence(
        "nsp", texts, make_tokenizer(), network, batch_size=BatchSize.parse(size), seed=0, head=HEAD
    )
    weights: dict[int, float] = {}
    for step in range(objective.stream.plan.batches_per_epoch):
        batch = objective.batch(step)
        losses = torch.zeros(batch.texts, requires_grad=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(objective, "match_loss", lambda network, hidden, batch, losses=losses: losses.mean())
            objective.loss(network, batch).total.backward()
        assert losses.grad is not None
        for position, weight in zip(objective.stream.positions(step).tolist(), losses.grad.tolist(), strict=True):
            weights[position] = weights.get(position, 0.0) + weight
    return weights


@pytest.mark.parametrize("size", ["256tok", "7"])
def test_long_and_short_inputs_count_alike(uneven: AlignedTexts, size: str) -> None:
    weights = weight_of_each_input(uneven, size)
    assert len(weights) >= 80
    assert {len(uneven[position]) > 20 for position in weights} == {True, False}
    assert max(weights.values()) == pytest.approx(min(weights.values()))


def test_the_batch_has_the_shares_of_its_step(uneven: AlignedTexts) -> None:
    network = make_aligned_network(2)
    objective = NextSentence(
        "nsp", uneven, make_tokenizer(), network, batch_size=BatchSize.parse("256tok"), seed=0, head=HEAD
    )
    shares = set()
    for step in range(objective.stream.plan.batches_per_epoch):
        batch = objective.batch(step)
        assert (batch.text_share, batch.token_share) == objective.stream.plan.shares(step)
        shares.add(batch.text_share)
    assert max(shares) / min(shares) > 2
