"""The network: weights from a seed alone, and each change where it belongs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from endtask.models.batch import gather_texts
from endtask.models.network import Network, initialize
from tests.tiny import ARCHITECTURES, make_network, make_packed, shake


def weights_of(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(value.equal(other[name]) for name, value in one.items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_come_from_the_seed_alone(architecture: str) -> None:
    torch.manual_seed(1)
    one = weights_of(make_network(architecture))
    torch.manual_seed(2)
    assert equal(one, weights_of(make_network(architecture)))
    assert not equal(one, weights_of(make_network(architecture, seed=1)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_weight_is_set_by_our_own_rule(architecture: str) -> None:
    network = make_network(architecture)
    expected = weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(math.nan)
    initialize(network, 0, 0.02)
    assert equal(weights_of(network), expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_matrices_are_normal_norms_one_and_biases_zero(architecture: str) -> None:
    network = make_network(architecture)
    norms = {name for name, module in network.named_modules() if isinstance(module, nn.LayerNorm)}
    drawn = []
    for name, value in network.named_parameters():
        if name.rpartition(".")[0] in norms:
            assert value.eq(1.0 if name.endswith("weight") else 0.0).all(), name
        elif value.ndim == 1:
            assert value.eq(0.0).all(), name
        else:
            drawn.append(value.detach().flatten())
    everything = torch.cat(drawn)
    everything = everything[everything != 0.0]  # the padding's vector
    assert abs(everything.mean()) < 4 * 0.02 / math.sqrt(len(everything))
    assert everything.std() == pytest.approx(0.02, rel=4 / math.sqrt(2 * len(everything)))
    beyond = (everything.abs() > 0.04).float().mean().item()
    assert beyond == pytest.approx(0.0455, abs=4 * math.sqrt(0.0455 / len(everything)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_has_the_zero_vector(architecture: str) -> None:
    network = make_network(architecture)
    embeddings = network.architecture.embeddings(network.body).weight
    assert embeddings[network.config.pad_token_id].eq(0.0).all()
    assert embeddings.ne(0.0).any(dim=1).sum() == len(embeddings) - 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_weights_are_the_same_on_every_device() -> None:
    on_cpu, on_gpu = make_network(), make_network().cuda()
    for network in (on_cpu, on_gpu):
        network.reset_task_head(5)
    assert equal(weights_of(on_cpu), weights_of(on_gpu.cpu()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_head_leaves_the_rest_alone(architecture: str) -> None:
    network = make_network(architecture)
    before = weights_of(network)
    network.reset_task_head(7)
    changed = {name for name, value in weights_of(network).items() if not value.equal(before[name])}
    matrices = {name for name, value in network.named_parameters() if name.startswith("task.") and value.ndim == 2}
    assert changed == matrices
    again = make_network(architecture, seed=9)
    again.reset_task_head(7)
    assert equal(weights_of(again.task), weights_of(network.task))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_can_be_set_and_taken_away(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture, dropout=0.1).train()
    batch = gather_texts(make_packed(tmp_path), np.arange(6), 0)

    def logits() -> torch.Tensor:
        return network.task_logits(network(batch), batch)

    network.set_dropout(0.0)
    assert logits().equal(logits())
    network.set_dropout(0.3)
    assert not logits().equal(logits())
    assert {module.p for module in network.modules() if isinstance(module, nn.Dropout)} == {0.3}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_of_zero_in_the_settings_can_still_be_raised(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture, dropout=0.0).train()
    network.set_dropout(0.3)
    batch = gather_texts(make_packed(tmp_path), np.arange(6), 0)
    assert not network(batch).equal(network(batch))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pairs", [False, True])
def test_padding_does_not_change_a_texts_logits(architecture: str, pairs: bool, tmp_path: Path) -> None:
    network = shake(make_network(architecture)).eval()
    texts = make_packed(tmp_path, pairs=pairs)
    together = logits_of(network, texts, np.arange(len(texts)))
    alone = torch.cat([logits_of(network, texts, np.array([position])) for position in range(len(texts))])
    assert len(set(texts.lengths.tolist())) > 3
    assert together.allclose(alone, atol=1e-5)
    assert together.std(dim=0).min() > 1e-2  # else equality would say nothing


@torch.inference_mode()
def logits_of(network: Network, texts: object, positions: np.ndarray) -> torch.Tensor:
    batch = gather_texts(texts, positions, 0)  # type: ignore[arg-type]
    return network.task_logits(network(batch), batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_logits_are_those_of_their_positions(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture).eval()
    batch = gather_texts(make_packed(tmp_path), np.arange(4), 0)
    hidden = network(batch)
    everywhere = network.masked_logits(hidden, torch.arange(batch.input_ids.numel()))
    chosen = torch.tensor([1, 5, batch.input_ids.numel() - 1])
    assert network.masked_logits(hidden, chosen).allclose(everywhere[chosen], atol=1e-6)
    assert everywhere.shape == (batch.input_ids.numel(), network.config.vocab_size)
