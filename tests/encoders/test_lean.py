"""Loss and gradients do not depend on the layout of texts, in the lean encoder and in the stock encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from endtask.encoders.batch import IGNORED, BatchShape, TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.huggingface import to_classifier, to_masked_lm
from endtask.encoders.lean_layers import rotary_base, rotary_table, rotate
from endtask.encoders.network import Network
from endtask.objectives.task_losses import cross_entropy
from endtask.tokenization.packed_texts import PackedTexts
from tests.encoders.layouts import batch_of, stock_inputs
from tests.tiny import ARCHITECTURES, make_labels, make_masking, make_network, make_packed, shake

# How many tokens more than the texts have, and places for texts and masked tokens.
FIXED_SHAPES = [
    None,
    BatchShape(tokens=0, texts=25, masked=128),
    BatchShape(tokens=9, texts=25, masked=128),
    BatchShape(tokens=13, texts=40, masked=192),
    BatchShape(tokens=150, texts=26, masked=128),
]
SHAPE_NAMES = ["exact", "full", "padded", "empty texts", "long padding"]


def shape_beyond(texts: PackedTexts, fixed_shape: BatchShape | None) -> BatchShape | None:
    """A shape with so many tokens more than the texts have."""
    return fixed_shape and replace(fixed_shape, tokens=int(texts.lengths.sum()) + fixed_shape.tokens)


def full_batch(network: Network, texts: PackedTexts, fixed_shape: BatchShape | None) -> TextBatch:
    """All texts, masked and labelled."""
    fixed_shape = shape_beyond(texts, fixed_shape)
    batch = make_masking().apply(
        batch_of(network, texts, fixed_shape=fixed_shape), np.random.default_rng(0), fixed_shape
    )
    size = len(batch.offsets) - 1
    labels = torch.full((size,), IGNORED)
    labels[: len(texts)] = torch.from_numpy(make_labels(len(texts)))
    return replace(batch, labels=labels, weights=(labels != IGNORED).float() / batch.texts)


def gradients(network: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in network.named_parameters() if value.grad is not None}


def both_losses(network: Network, batch: TextBatch) -> tuple[Tensor, Tensor]:
    hidden = network(batch)
    return network.masked_lm_loss(hidden, batch), cross_entropy(network.task_logits(hidden, batch), batch)


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.isfinite().all(), name
        scale = max(float(theirs[name].abs().max()), 1e-2)
        assert (value - theirs[name]).abs().max() < 2e-5 * scale, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("fixed_shape", FIXED_SHAPES[1:], ids=SHAPE_NAMES[1:])
def test_a_room_changes_neither_loss_nor_gradients(architecture: str, fixed_shape: BatchShape, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture)), make_packed(tmp_path, pairs=True)
    exact, filled = (full_batch(network, texts, one) for one in (None, fixed_shape))
    assert len(filled.input_ids) == exact.real_tokens + fixed_shape.tokens
    for one, other in zip(both_losses(network, exact), both_losses(network, filled), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)
    assert_same(
        gradients(network, sum(both_losses(network, filled))),  # type: ignore[arg-type]
        gradients(network, sum(both_losses(network, exact))),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("fixed_shape", FIXED_SHAPES, ids=SHAPE_NAMES)
def test_our_encoder_trains_as_the_stock_one(fixed_shape: BatchShape | None, tmp_path: Path) -> None:
    """Same weights, same names, same losses and gradients as `ModernBertModel` over a padded table."""
    lean, stock = shake(make_network("lean")), make_network("modernbert")
    stock.load_state_dict(lean.state_dict(), strict=True)
    texts = make_packed(tmp_path, pairs=True)
    ours, theirs = full_batch(lean, texts, fixed_shape), full_batch(stock, texts, None)
    for one, other in zip(both_losses(lean, ours), both_losses(stock, theirs), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-5)
    assert_same(
        gradients(lean, sum(both_losses(lean, ours))),  # type: ignore[arg-type]
        gradients(stock, sum(both_losses(stock, theirs))),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_losses_and_gradients_are_those_of_the_stock_models(architecture: str, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture)), make_packed(tmp_path, pairs=True)
    batch, inputs = full_batch(network, texts, None), stock_inputs(network, texts)
    present = inputs["attention_mask"].bool()
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    targets = torch.full((int(present.sum()),), IGNORED)
    targets[batch.masked_positions] = batch.masked_targets
    words = torch.full(present.shape, IGNORED).masked_scatter(present, targets)
    masked = inputs | {"input_ids": inputs["input_ids"].masked_scatter(present, batch.input_ids)}
    masked_lm = to_masked_lm(network).train()
    loss = masked_lm(**masked, labels=words).loss
    ours = both_losses(network, batch)
    assert ours[0].item() == pytest.approx(loss.item(), rel=1e-5)
    _assert_same_embeddings(network, ours[0], masked_lm, loss)
    classifier = to_classifier(network).train()
    classifier.config.problem_type = None
    loss = classifier(**masked, labels=torch.from_numpy(make_labels(len(texts)))).loss
    ours = both_losses(network, batch)
    assert ours[1].item() == pytest.approx(loss.item(), rel=1e-5)
    _assert_same_embeddings(network, ours[1], classifier, loss)


@pytest.mark.filterwarnings("ignore:mkldnn")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_half_precision_trains_in_the_same_direction(architecture: str, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture)), make_packed(tmp_path, pairs=True)
    batch = full_batch(network, texts, None)
    exact = both_losses(network, batch)
    expected = gradients(network, sum(exact))  # type: ignore[arg-type]
    network.dtype = torch.bfloat16
    with DeviceContext(torch.device("cpu"), torch.bfloat16).autocast():
        half = both_losses(network, batch)
    assert [loss.item() for loss in half] == pytest.approx([loss.item() for loss in exact], rel=2e-2)
    found = gradients(network, sum(half))  # type: ignore[arg-type]
    for name, value in expected.items():
        alike = torch.nn.functional.cosine_similarity(value.flatten(), found[name].flatten(), dim=0)
        assert alike > 0.99 or value.norm() < 1e-3, name
        assert found[name].dtype == torch.float32


def _assert_same_embeddings(network: Network, ours: Tensor, stock: torch.nn.Module, theirs: Tensor) -> None:
    network.zero_grad()
    ours.backward()
    theirs.backward()
    assert network.embeddings.grad is not None
    stock_grad = stock.get_input_embeddings().weight.grad  # type: ignore[operator]
    assert_same({"embeddings": network.embeddings.grad}, {"embeddings": stock_grad})


def test_positions_turn_by_angles_that_depend_on_their_distance_alone() -> None:
    cosine, sine = rotary_table(8, 30, 100.0)
    query, key = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))

    def product(one: int, other: int) -> float:
        turned = (rotate(part, cosine[[at]], sine[[at]]) for part, at in ((query, one), (key, other)))
        return float((next(turned) * next(turned)).sum())

    assert rotate(query, cosine[[0]], sine[[0]]).equal(query)
    assert product(3, 9) == pytest.approx(product(13, 19), abs=1e-5)
    assert product(3, 9) != pytest.approx(product(9, 3), abs=1e-3)


def test_the_base_of_angles_is_found_under_either_key() -> None:
    class Old:
        global_rope_theta = 12.0

    class New:
        rope_parameters = {"full_attention": {"rope_theta": 34.0}}  # noqa: RUF012

    assert rotary_base(Old()) == 12.0
    assert rotary_base(New()) == 34.0
