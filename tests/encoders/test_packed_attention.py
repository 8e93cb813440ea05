"""BERT and RoBERTa without padding give the results of padded tables; a loop over texts replaces the GPU kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from endtask.encoders import attention
from endtask.encoders.attention import AttentionMetadata
from endtask.encoders.batch import BatchShape
from endtask.encoders.huggingface import to_classifier
from endtask.encoders.network import Network
from endtask.gradients.engine import GradientEngine, masked_lm_losses, task_losses
from endtask.gradients.targets import products
from tests.encoders.layouts import batch_of, real_rows, stock_inputs
from tests.gradients.batches import labelled_batch, masked_batch
from tests.gradients.batches import make_network as wide_network
from tests.tiny import make_network, make_packed, shake

BOTH = pytest.mark.parametrize("architecture", ["bert", "roberta"])


def text_by_text(query: Tensor, key: Tensor, value: Tensor, metadata: AttentionMetadata) -> Tensor:
    """Attention of one text after the other: (N, heads, size)."""
    assert metadata.offsets is not None
    sizes = metadata.offsets.diff().tolist()
    parts = zip(*(part.transpose(0, 1).split(sizes, dim=1) for part in (query, key, value)), strict=True)
    return torch.cat([functional.scaled_dot_product_attention(*part) for part in parts], dim=1).transpose(0, 1)


@pytest.fixture(autouse=True)
def _loop_for_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_varlen", text_by_text)


def packed(network: Network) -> Network:
    network.backend = "varlen"
    assert not network.layout(16).grid
    assert not network.layout(16).padded
    return network


@BOTH
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("fixed_shape", [None, BatchShape(tokens=400, texts=40)])
def test_vectors_are_those_of_the_stock_model(
    architecture: str, pairs: bool, fixed_shape: BatchShape | None, tmp_path: Path
) -> None:
    network, texts = shake(make_network(architecture)).eval(), make_packed(tmp_path, pairs=pairs)
    batch = batch_of(packed(network), texts, fixed_shape=fixed_shape)
    assert batch.grid is None
    stock = to_classifier(network).base_model.eval()
    inputs = stock_inputs(network, texts)
    expected = real_rows(stock(**inputs).last_hidden_state, texts)
    assert torch.allclose(network(batch)[: batch.real_tokens], expected, atol=1e-5)


@BOTH
def test_gradients_are_those_of_padded_tables(architecture: str, tmp_path: Path) -> None:
    texts = make_packed(tmp_path)
    found = []
    for backend in ("padded", "varlen"):
        network = shake(make_network(architecture))
        network.backend = backend  # type: ignore[assignment]
        network(batch_of(network, texts)).square().mean().backward()
        found.append({name: weight.grad for name, weight in network.encoder.named_parameters()})
    for name, expected in found[0].items():
        assert expected is not None
        assert torch.allclose(found[1][name], expected, atol=1e-5), name


@BOTH
def test_attention_weights_alone_are_not_dropped(architecture: str, tmp_path: Path) -> None:
    network, texts = packed(shake(make_network(architecture, dropout=0.5))), make_packed(tmp_path)
    batch = batch_of(network, texts)
    calm = network.eval()(batch)
    assert not torch.allclose(network.train()(batch), calm)
    for module in network.encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert torch.allclose(network(batch), calm, atol=1e-6)


@BOTH
def test_no_mask_is_made_of_what_has_no_padding(
    architecture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    network, seen = make_network(architecture), []

    def spy(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **asked: Any) -> Any:
        seen.append((query.shape[0], mask is None))
        return attention.packed_attention(module, query, key, value, mask, **asked)

    AttentionInterface.register(attention.ATTENTION, spy)
    try:
        texts = make_packed(tmp_path)
        network(batch_of(network, texts))
        network.backend = "varlen"
        network(batch_of(network, texts))
    finally:
        AttentionInterface.register(attention.ATTENTION, attention.packed_attention)
    assert seen == [(len(texts), False)] * 2 + [(1, True)] * 2


@pytest.mark.long
@pytest.mark.slow
@BOTH
def test_the_body_is_compiled_without_a_break(architecture: str, tmp_path: Path) -> None:
    network, texts = shake(make_network(architecture)), make_packed(tmp_path)
    batch = batch_of(network, texts)
    metadata = attention.attention_metadata("padded", batch)  # the loop of these tests cannot be compiled
    expected = network.architecture.packed(network.encoder, batch, metadata)  # type: ignore[attr-defined]
    network.encoder.compile(dynamic=False, fullgraph=True, backend="aot_eager")
    found = network.architecture.packed(network.encoder, batch, metadata)  # type: ignore[attr-defined]
    assert torch.allclose(found, expected, atol=1e-5)


@BOTH
def test_gradients_of_single_texts(architecture: str) -> None:
    found = []
    for backend in ("padded", "varlen"):
        network = wide_network(architecture)
        network.backend = backend  # type: ignore[assignment]
        engine = GradientEngine(network, ("*",))
        masked, labelled = masked_batch(network, [6, 9, 3]), labelled_batch(network, [5, 8])
        found.append(products(engine.gradients(masked, masked_lm_losses), engine.gradients(labelled, task_losses)))
    assert torch.allclose(found[1], found[0], rtol=1e-8)
