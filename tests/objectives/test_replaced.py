"""Replaced-token detection: replacements, labels, and the part of the network that each loss trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED, BatchShape, TextBatch, lay_out
from endtask.encoders.network import GENERATOR, REPLACED, Network
from endtask.objectives.replaced import ReplacedTokens, add_generator, fill_gaps
from endtask.objectives.stream import TextStream
from tests.tiny import by_itself, make_masking, make_network, make_packed, make_tokenizer, shake


def network_with_generator(architecture: str = "lean") -> Network:
    network = make_network(architecture)
    add_generator(network, seed=1)
    return network


def objective_over(folder: Path, network: Network, batch_size: str = "6") -> ReplacedTokens:
    texts = make_packed(folder)
    stream = TextStream("x", texts, network, batch_size=BatchSize.parse(batch_size), seed=0, masking=make_masking())
    return ReplacedTokens("x", stream)


@given(seed=st.integers(min_value=0, max_value=2**32), gaps=st.integers(min_value=1, max_value=9), padded=st.booleans())
@settings(max_examples=40, deadline=None)
def test_gaps_are_filled_and_padding_changes_nothing(seed: int, gaps: int, padded: bool) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(5, 50, size=12)
    ids[0] = 2  # a special token
    positions = np.sort(random.choice(np.arange(1, 12), size=gaps, replace=False))
    guesses = random.integers(5, 8, size=gaps)
    targets = random.integers(5, 8, size=gaps)

    def with_room(values: np.ndarray, filler: int) -> np.ndarray:
        return np.concatenate([values, np.full(4 if padded else 0, filler)])

    batch = make_batch(ids, with_room(positions, 0), with_room(targets, IGNORED))
    filled, replaced = fill_gaps(batch, torch.from_numpy(with_room(guesses, 9)))
    expected, wrong = ids.copy(), np.zeros(12)
    for position, guess, target in zip(positions, guesses, targets, strict=True):
        expected[position], wrong[position] = guess, guess != target
    assert filled.tolist() == expected.tolist()
    assert replaced.tolist() == wrong.tolist()


def make_batch(ids: np.ndarray, positions: np.ndarray, targets: np.ndarray) -> TextBatch:
    tensor = torch.from_numpy(ids)
    return TextBatch(
        input_ids=tensor,
        position_ids=torch.arange(len(ids)),
        token_type_ids=torch.zeros_like(tensor),
        text_ids=torch.zeros_like(tensor),
        offsets=torch.tensor([0, len(ids)], dtype=torch.int32),
        longest=len(ids),
        grid=None,
        texts=1,
        real_tokens=len(ids),
        padded_tokens=len(ids),
        squared_lengths=len(ids) ** 2,
        even=True,
        masked_positions=torch.from_numpy(positions),
        masked_targets=torch.from_numpy(targets),
    )


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_the_loss_is_that_of_both_networks_one_after_the_other(tmp_path: Path, architecture: str) -> None:
    network = shake(network_with_generator(architecture)).eval()
    objective = objective_over(tmp_path / "texts", network)
    batch = by_itself(objective.batch(0))
    torch.manual_seed(3)
    loss = objective.loss(network, batch)
    torch.manual_seed(3)
    generator = network.heads[GENERATOR]
    _, guesses = generator(network, batch)
    filled = batch.input_ids.clone()
    wrong = torch.zeros(len(filled))
    for place, (position, target) in enumerate(zip(batch.masked_positions, batch.masked_targets, strict=True)):  # type: ignore[arg-type]
        filled[position] = guesses[place]
        wrong[position] = float(guesses[place] != target)
    head = network.heads[REPLACED]
    logits = head.out(head.transform(network(replace(batch, input_ids=filled)))).squeeze(-1)  # type: ignore[operator,union-attr]
    detection = functional.binary_cross_entropy_with_logits(logits, wrong)
    assert 0 < wrong.sum() < len(wrong)
    torch.testing.assert_close(loss.parts["replaced"], detection)
    torch.testing.assert_close(loss.total, loss.parts["mlm"] / 50.0 + detection)


def test_padding_does_not_count(tmp_path: Path) -> None:
    network = shake(network_with_generator()).eval()
    texts, masking = make_packed(tmp_path / "texts"), make_masking()
    positions, layout = np.arange(5), network.layout(16)
    fixed_shape = BatchShape(tokens=128, texts=12, masked=40)
    tight = masking.apply(lay_out(texts, positions, layout), np.random.default_rng(0))
    roomy = masking.apply(
        lay_out(texts, positions, replace(layout, fixed_shape=fixed_shape)), np.random.default_rng(0), fixed_shape
    )
    objective = objective_over(tmp_path / "more", network)
    guesses = torch.randint(5, len(make_tokenizer()), (40,), generator=torch.Generator().manual_seed(0))
    detections = []
    for batch in (tight, roomy):
        filled, wrong = fill_gaps(batch, guesses[: len(batch.masked_positions)])  # type: ignore[arg-type]
        present = (batch.text_ids < batch.texts).float()
        detections.append(network.heads[REPLACED](network(replace(batch, input_ids=filled)), wrong, present))
    torch.testing.assert_close(detections[0], detections[1])
    assert objective.loss(network, roomy).total.isfinite()


def test_each_loss_teaches_its_own_network(tmp_path: Path) -> None:
    network = network_with_generator()
    objective = objective_over(tmp_path / "texts", network)
    loss = objective.loss(network, objective.batch(0))
    loss.parts["replaced"].backward(retain_graph=True)  # type: ignore[no-untyped-call]
    assert all(weight.grad is None for weight in network.heads[GENERATOR].parameters())
    assert all(weight.grad is not None for weight in network.encoder.parameters())
    network.zero_grad(set_to_none=True)
    loss.parts["mlm"].backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is None for weight in network.encoder.parameters())
    assert all(weight.grad is not None for weight in network.heads[GENERATOR].parameters())


def test_guesses_are_drawn_by_what_the_generator_believes() -> None:
    head = network_with_generator().heads[GENERATOR].head
    hidden, embeddings = torch.zeros(1, 8), torch.zeros(len(head.bias), 8)
    with torch.no_grad():
        head.bias.fill_(-50.0)
        head.bias[7], head.bias[9] = 1.0, 0.0
    torch.manual_seed(0)
    positions, targets = torch.zeros(4000, dtype=torch.int64), torch.full((4000,), 7)
    _, guesses = head(hidden, embeddings, positions, targets)
    assert set(guesses.tolist()) == {7, 9}
    share = (guesses == 7).float().mean().item()
    assert share == pytest.approx(np.e / (1 + np.e), abs=0.03)


def test_costs_count_both_networks(tmp_path: Path) -> None:
    network = network_with_generator()
    objective = objective_over(tmp_path / "texts", network)
    batch = objective.batch(0)
    assert network.training_flops(batch) < objective.flops(network, batch) < 3 * network.training_flops(batch)
