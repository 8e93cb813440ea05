"""Losses against those of the stock Hugging Face models, for every architecture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from endtask.models.batch import TextBatch
from endtask.models.huggingface import to_masked_lm, to_sequence_classification
from endtask.models.network import Network
from endtask.objectives.masked_lm import MaskedLM, masked_lm_loss
from endtask.objectives.task import Classification, JointClassification
from endtask.text.packed import PackedTexts
from tests.tiny import ARCHITECTURES, LABELS, make_labels, make_masking, make_network, make_packed, shake

COMMON: dict[str, Any] = {"batch_size": 8, "pad_id": 0, "seed": 3}


@pytest.fixture
def texts(tmp_path: Path) -> PackedTexts:
    return make_packed(tmp_path, pairs=True)


def stock_inputs(network: Network, batch: TextBatch) -> dict[str, torch.Tensor]:
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if network.architecture.name == "bert" else [])]
    return {name: getattr(batch, name) for name in names}


def stock_mlm_loss(network: Network, batch: TextBatch) -> torch.Tensor:
    """The stock model's loss over full-vocabulary logits of all positions, -100 where nothing is masked."""
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    labels = torch.full((batch.input_ids.numel(),), -100)
    labels[batch.masked_positions] = batch.masked_targets
    labels = labels.reshape(batch.input_ids.shape)
    return to_masked_lm(network)(**stock_inputs(network, batch), labels=labels).loss


def without_gradient(network: Network) -> set[str]:
    return {name for name, parameter in network.named_parameters() if parameter.grad is None}


def heads(network: Network, *prefixes: str) -> set[str]:
    return {name for name, _ in network.named_parameters() if name.startswith(prefixes)}


def gradients(network: Network) -> Iterable[torch.Tensor]:
    return (parameter.grad for parameter in network.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_is_the_stock_models_loss(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = MaskedLM("external", texts, make_masking(), **COMMON)
    batch = objective.batch(0)
    loss = objective.loss(network, batch)
    assert loss.total.item() == pytest.approx(stock_mlm_loss(network, batch).item(), rel=1e-5)
    assert loss.parts == {"mlm": loss.total}
    loss.total.backward()
    assert without_gradient(network) == heads(network, "task.")
    assert all(gradient.isfinite().all() for gradient in gradients(network))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_classification_is_the_stock_models_loss(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = Classification(texts, make_labels(), **COMMON)
    batch = objective.batch(0)
    loss = objective.loss(network, batch)
    stock = to_sequence_classification(network)(**stock_inputs(network, batch), labels=batch.labels)
    assert loss.total.item() == pytest.approx(stock.loss.item(), rel=1e-5)
    loss.total.backward()
    assert without_gradient(network) == heads(network, "masked_lm.")
    assert all(gradient.isfinite().all() for gradient in gradients(network))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("rho2", [0.0, 1.0, 20.0])
def test_the_joint_loss_is_eq_2_of_tlm(architecture: str, normalize: bool, rho2: float, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = JointClassification(texts, make_labels(), make_masking(), rho2=rho2, normalize=normalize, **COMMON)
    batch = objective.batch(0)
    loss = objective.loss(network, batch)
    mlm = stock_mlm_loss(network, batch).item()
    task = to_sequence_classification(network)(**stock_inputs(network, batch), labels=batch.labels).loss.item()
    expected = (rho2 * mlm + task) / (rho2 + 1 if normalize else 1)
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert {name: part.item() for name, part in loss.parts.items()} == pytest.approx({"mlm": mlm, "task": task})
    loss.total.backward()
    assert without_gradient(network) == set()


def test_a_batch_with_nothing_masked_costs_nothing_and_breaks_nothing(texts: PackedTexts) -> None:
    network = make_network()
    special = torch.tensor([[2, 3], [2, 3]])
    batch = make_masking().apply(
        TextBatch(special, torch.ones_like(special), torch.zeros_like(special)), np.random.default_rng(0)
    )
    loss = masked_lm_loss(network, network(batch), batch)
    loss.backward()
    assert loss.item() == 0.0
    assert all(gradient.eq(0).all() for gradient in gradients(network))


@pytest.mark.parametrize("kind", [MaskedLM, Classification, JointClassification])
def test_batches_are_functions_of_seed_and_step(kind: type, texts: PackedTexts) -> None:
    def make(seed: int) -> Any:
        options = {**COMMON, "seed": seed}
        if kind is MaskedLM:
            return MaskedLM("external", texts, make_masking(), **options)
        if kind is Classification:
            return Classification(texts, make_labels(), **options)
        return JointClassification(texts, make_labels(), make_masking(), rho2=1, normalize=True, **options)

    one, other = make(3), make(3)
    forwards = [one.batch(step).input_ids.tolist() for step in range(7)]
    backwards = [other.batch(step).input_ids.tolist() for step in reversed(range(7))][::-1]
    assert forwards == backwards
    assert [make(4).batch(step).input_ids.tolist() for step in range(7)] != forwards
    assert len({str(ids) for ids in forwards}) > 3


def test_labels_travel_with_their_texts(texts: PackedTexts) -> None:
    objective = Classification(texts, np.arange(len(texts)), **COMMON)
    for step in range(6):
        batch = objective.batch(step)
        assert batch.labels is not None
        for row, position in enumerate(batch.labels.tolist()):
            length = int(batch.attention_mask[row].sum())
            assert batch.input_ids[row, :length].tolist() == texts[position].tolist()


def test_the_same_masked_input_feeds_both_heads(texts: PackedTexts) -> None:
    objective = JointClassification(texts, make_labels(), make_masking(), rho2=1, normalize=True, **COMMON)
    batch = objective.batch(0)
    assert batch.labels is not None
    assert batch.masked_targets is not None
    assert len(batch.labels) == 8
    assert set(batch.labels.tolist()) <= set(range(len(LABELS)))
    assert (batch.input_ids.flatten()[batch.masked_positions] != batch.masked_targets).any()
