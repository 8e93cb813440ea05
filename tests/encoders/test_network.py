"""The network: its weights depend on the seed alone, and each setting changes only its own part."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from endtask.config import ModelSettings
from endtask.encoders.base import encoders
from endtask.encoders.heads import pool
from endtask.encoders.network import MASKED_LM, TASK, TLM_TASK, Network, build_network, initialize, pooling_of
from endtask.errors import InputError
from endtask.tokenization.packed_texts import PackedTexts
from tests.encoders.layouts import batch_of
from tests.tiny import ARCHITECTURES, LABELS, make_network, make_packed, make_tokenizer, shake

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}


def build(architecture: str, *, vocabulary: int = 100, tlm_head: bool = False, **changes: Any) -> Network:
    return build_network(
        ModelSettings.model_validate({"architecture": architecture, **SIZES, **changes}),
        vocabulary=vocabulary,
        special_ids={"pad": 0, "cls": 2, "sep": 3},
        labels=LABELS,
        seed=0,
        tlm_head=tlm_head,
    )


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
    network = build(architecture, tlm_head=True)
    expected = weights_of(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(math.nan)
    initialize(network, 0, network.config)
    assert equal(weights_of(network), expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_matrices_are_normal_norms_one_and_biases_zero(architecture: str) -> None:
    network = make_network(architecture)
    norms = {name for name, module in network.named_modules() if isinstance(module, nn.LayerNorm)}
    drawn: dict[bool, list[torch.Tensor]] = {False: [], True: []}
    for name, value in network.named_parameters():
        if name.rpartition(".")[0] in norms:
            assert value.eq(1.0 if name.endswith("weight") else 0.0).all(), name
        elif value.ndim == 1:
            assert value.eq(0.0).all(), name
        else:
            drawn[name.endswith(".Wo.weight")].append(value.detach().flatten())
    gated = architecture in ("lean", "modernbert")
    assert len(drawn[True]) == (4 if gated else 0)
    assert_normal(torch.cat(drawn[False]), 0.02)
    if gated:  # what is added to the stream of a pre-norm encoder grows with the number of layers, here 2
        assert_normal(torch.cat(drawn[True]), 0.02 / math.sqrt(4))


def assert_normal(values: torch.Tensor, deviation: float) -> None:
    values = values[values != 0.0]  # the padding's vector
    assert abs(values.mean()) < 4 * deviation / math.sqrt(len(values))
    assert values.std() == pytest.approx(deviation, rel=4 / math.sqrt(2 * len(values)))
    beyond = (values.abs() > 2 * deviation).float().mean().item()
    assert beyond == pytest.approx(0.0455, abs=4 * math.sqrt(0.0455 / len(values)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_authors_own_head_is_uniform(architecture: str) -> None:
    """PyTorch's rule, as in their code: within 1 / sqrt(inputs), biases too."""
    head = build(architecture, tlm_head=True).heads[TLM_TASK]
    values = torch.cat([value.detach().flatten() for value in head.parameters()])
    bound = 1 / math.sqrt(SIZES["hidden_size"])
    assert values.abs().max() < bound
    assert values.abs().max() > 0.97 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert all(value.std() > 0 for value in head.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_authors_own_head_changes_no_other_weight(architecture: str) -> None:
    plain, with_head = weights_of(build(architecture)), weights_of(build(architecture, tlm_head=True))
    assert {name for name in with_head if name not in plain} == {
        f"heads.{TLM_TASK}.{part}" for part in ("dense.weight", "dense.bias", "out.weight", "out.bias")
    }
    assert all(value.equal(with_head[name]) for name, value in plain.items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_has_the_zero_vector(architecture: str) -> None:
    network = make_network(architecture)
    assert network.embeddings[network.config.pad_token_id].eq(0.0).all()
    assert network.embeddings.ne(0.0).any(dim=1).sum() == len(network.embeddings) - 1


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
    own = f"heads.{TASK}."
    assert changed == {name for name, value in network.named_parameters() if name.startswith(own) and value.ndim == 2}
    again = make_network(architecture, seed=9)
    again.reset_task_head(7)
    assert equal(weights_of(again.heads[TASK]), weights_of(network.heads[TASK]))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_can_be_set_and_taken_away(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture, dropout=0.1).train()
    batch = batch_of(network, make_packed(tmp_path), np.arange(6))

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
    batch = batch_of(network, make_packed(tmp_path), np.arange(6))
    assert not network(batch).equal(network(batch))


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_dropout_reaches_attention_in_paper_mode(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture, dropout=0.0).train()
    for name, module in network.named_modules():
        if name.endswith("attention.self.dropout"):
            module.p = 0.3  # type: ignore[assignment]
    batch = batch_of(network, make_packed(tmp_path), np.arange(6))
    assert not network(batch).equal(network(batch))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("pairs", [False, True])
def test_neighbours_do_not_change_a_texts_logits(architecture: str, pairs: bool, tmp_path: Path) -> None:
    network = shake(make_network(architecture)).eval()
    texts = make_packed(tmp_path, pairs=pairs)
    together = logits_of(network, texts, np.arange(len(texts)))
    alone = torch.cat([logits_of(network, texts, np.array([position])) for position in range(len(texts))])
    assert len(set(texts.lengths.tolist())) > 3
    assert together.allclose(alone, atol=1e-5)
    assert together.std(dim=0).min() > 1e-2  # else equality would say nothing


@torch.inference_mode()
def logits_of(network: Network, texts: PackedTexts, positions: np.ndarray) -> torch.Tensor:
    batch = batch_of(network, texts, positions)
    return network.task_logits(network(batch), batch)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_logits_are_those_of_their_positions(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture).eval()
    batch = batch_of(network, make_packed(tmp_path), np.arange(4))
    hidden = network(batch)
    everywhere = network.masked_logits(hidden, torch.arange(len(batch.input_ids)))
    chosen = torch.tensor([1, 5, len(batch.input_ids) - 1])
    assert network.masked_logits(hidden, chosen).allclose(everywhere[chosen], atol=1e-6)
    assert everywhere.shape == (len(batch.input_ids), network.config.vocab_size)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooling_is_that_of_each_text(pooling: str, tmp_path: Path) -> None:
    network, texts = make_network(), make_packed(tmp_path)
    batch = batch_of(network, texts)
    hidden = torch.randn(len(batch.input_ids), 8, generator=torch.Generator().manual_seed(0))
    parts = hidden.split(texts.lengths.tolist())
    expected = torch.stack([part[0] if pooling == "cls" else part.mean(0) for part in parts])
    assert pool(hidden, batch, pooling).allclose(expected, atol=1e-6)


def test_the_authors_own_head_reads_the_first_token(tmp_path: Path) -> None:
    network = build("lean", vocabulary=len(make_tokenizer()), tlm_head=True).eval()
    assert network.config.classifier_pooling == "mean"
    batch = batch_of(network, make_packed(tmp_path))
    hidden = network(batch)
    expected = network.heads[TLM_TASK](hidden[batch.offsets[:-1].long()])
    assert network.task_logits(hidden, batch, TLM_TASK).equal(expected)
    assert not network.task_logits(hidden, batch).allclose(expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("vocabulary", "rounded"), [(64, 64), (65, 128), (8000, 8000)])
def test_the_vocabulary_is_rounded_up(architecture: str, vocabulary: int, rounded: int) -> None:
    network = build(architecture, vocabulary=vocabulary)
    assert network.config.vocab_size == len(network.embeddings) == rounded
    assert network.heads[MASKED_LM].bias.shape == (rounded,)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("architecture", "asked", "read"),
    [
        ("lean", "auto", "mean"),
        ("lean", "cls", "cls"),
        ("modernbert", "auto", "mean"),
        ("bert", "auto", "cls"),
        ("bert", "mean", "mean"),
        ("roberta", "cls", "cls"),
    ],
)
def test_what_the_head_reads_is_for_the_settings_to_say(architecture: str, asked: str, read: str) -> None:
    network = build(architecture, pooling=asked)
    assert network.architecture.pooling(network.config) == read


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_pooling_that_the_stock_head_lacks_is_refused(architecture: str) -> None:
    with pytest.raises(InputError, match=rf"key 'model.pooling': {architecture} has cls"):
        pooling_of(ModelSettings(path="a checkpoint", pooling="entity_markers"), encoders.get(architecture)(), (7,))


def test_roberta_counts_positions_from_its_padding() -> None:
    for pad in (0, 1, 7):
        network = build_network(
            ModelSettings.model_validate({"architecture": "roberta", **SIZES}),
            vocabulary=100,
            special_ids={"pad": pad, "cls": 2, "sep": 3},
            labels=LABELS,
            seed=0,
        )
        assert network.config.max_position_embeddings == 32 + pad + 1
        assert network.architecture.max_length(network.config) == 32
        assert network.config.type_vocab_size == 1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_longest_text_can_be_read(architecture: str, tmp_path: Path) -> None:
    network = make_network(architecture).eval()
    longest = network.architecture.max_length(network.config)
    assert longest == 32
    ids = torch.full((1, longest), 7)
    hidden = network.architecture.masked_lm(network.config)(input_ids=ids).logits
    assert hidden.isfinite().all()
