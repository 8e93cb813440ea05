"""Losses against those of stock Hugging Face models, for every architecture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from endtask.config import BatchSize
from endtask.encoders.batch import IGNORED, TextBatch, as_table, lay_out
from endtask.encoders.huggingface import to_classifier, to_masked_lm
from endtask.encoders.network import TLM_TASK, Network
from endtask.objectives.masking import Masking
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification, JointTask
from endtask.seeds import generator
from endtask.tokenization.packed_texts import PackedTexts
from tests.tiny import ARCHITECTURES, LABELS, by_itself, make_labels, make_masking, make_network, make_packed, shake

SEED = 3
KINDS = ("mlm", "task", "joint")
Objective = MaskedLM | Classification | JointTask


@pytest.fixture
def texts(tmp_path: Path) -> PackedTexts:
    return make_packed(tmp_path, pairs=True)


def stream_of(texts: PackedTexts, network: Network, *, masked: bool = True, seed: int = SEED) -> TextStream:
    masking = make_masking() if masked else None
    return TextStream("any", texts, network, batch_size=BatchSize.parse("8"), seed=seed, masking=masking)


def make(kind: str, stream: Any, **options: Any) -> Objective:
    if kind == "mlm":
        return MaskedLM("any", stream)
    if kind == "task":
        return Classification("any", stream, make_labels(), **options)
    head = {"head": options.pop("head")} if "head" in options else {}
    task = Classification("any", stream, make_labels(), **head)
    return JointTask(task, **{"rho2": 1.0, **options})


def stock_inputs(network: Network, batch: TextBatch) -> dict[str, torch.Tensor]:
    table = as_table(batch, network.config.pad_token_id)
    return {name: table[name] for name in network.architecture.input_names}


def stock_mlm_loss(network: Network, batch: TextBatch) -> torch.Tensor:
    """The stock model's loss over full-vocabulary logits of all positions, -100 where nothing is masked."""
    assert batch.grid is not None
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    targets = torch.full((len(batch.input_ids) + 1,), IGNORED)
    targets[batch.masked_positions] = batch.masked_targets
    loss: torch.Tensor = to_masked_lm(network)(**stock_inputs(network, batch), labels=targets[batch.grid]).loss
    return loss


def stock_task_loss(network: Network, batch: TextBatch) -> torch.Tensor:
    loss: torch.Tensor = to_classifier(network)(**stock_inputs(network, batch), labels=batch.labels).loss
    return loss


def without_gradient(network: Network) -> set[str]:
    return {name for name, parameter in network.named_parameters() if parameter.grad is None}


def names(network: Network, *prefixes: str) -> set[str]:
    return {name for name, _ in network.named_parameters() if name.startswith(prefixes)}


def gradients(network: Network) -> dict[str, torch.Tensor]:
    return {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_is_the_stock_models_loss(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = make("mlm", stream_of(texts, network))
    batch = by_itself(objective.batch(0))
    loss = objective.loss(network, batch)
    assert loss.total.item() == pytest.approx(stock_mlm_loss(network, batch).item(), rel=1e-5)
    assert loss.parts == {"mlm": loss.total}
    loss.total.backward()
    assert without_gradient(network) == names(network, "heads.task.")
    assert objective.heads == ("masked_lm",)
    assert all(gradient.isfinite().all() for gradient in gradients(network).values())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_classification_is_the_stock_models_loss(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = make("task", stream_of(texts, network, masked=False))
    batch = objective.batch(0)
    loss = objective.loss(network, batch)
    assert loss.total.item() == pytest.approx(stock_task_loss(network, batch).item(), rel=1e-5)
    assert loss.parts == {"task": loss.total}
    loss.total.backward()
    assert without_gradient(network) == names(network, "heads.masked_lm.")
    assert objective.heads == ("task",)
    assert all(gradient.isfinite().all() for gradient in gradients(network).values())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rho2", [1.0, 20.0])
def test_the_joint_loss_is_eq_2_of_tlm(architecture: str, rho2: float, texts: PackedTexts) -> None:
    network = shake(make_network(architecture))
    objective = make("joint", stream_of(texts, network), rho2=rho2)
    batch = by_itself(objective.batch(0))
    loss = objective.loss(network, batch)
    mlm, task = stock_mlm_loss(network, batch).item(), stock_task_loss(network, batch).item()
    expected = (rho2 * mlm + task) / (rho2 + 1)
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert {name: part.item() for name, part in loss.parts.items()} == pytest.approx({"mlm": mlm, "task": task})
    loss.total.backward()
    assert without_gradient(network) == set()
    assert objective.heads == ("task", "masked_lm")


@pytest.mark.parametrize("masked", [True, False])
def test_without_rho2_the_masked_lm_head_is_not_computed(
    masked: bool, texts: PackedTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = shake(make_network())
    objective = make("joint", stream_of(texts, network, masked=masked), rho2=0.0)

    def never(*_: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(network, "masked_lm_loss", never)
    batch = by_itself(objective.batch(0))
    loss = objective.loss(network, batch)
    assert loss.total.item() == pytest.approx(stock_task_loss(network, batch).item(), rel=1e-5)
    assert list(loss.parts) == ["task"]
    loss.total.backward()
    assert without_gradient(network) == names(network, "heads.masked_lm.")
    assert objective.heads == ("task",)
    assert objective.flops(network, batch) == network.training_flops(batch, texts=8)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tlm_authors_head_is_dense_gelu_dense_on_the_first_token(architecture: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture, tlm_head=True))
    objective = make("joint", stream_of(texts, network), head=TLM_TASK, rho2=2.0)
    batch = by_itself(objective.batch(0))
    loss = objective.loss(network, batch)
    dense, out = (network.heads[TLM_TASK].get_submodule(name) for name in ("dense", "out"))
    first = network(batch)[batch.offsets[:-1].long()]
    task = functional.cross_entropy(out(functional.gelu(dense(first))), batch.labels)
    assert loss.parts["task"].item() == pytest.approx(task.item(), rel=1e-5)
    assert loss.total.item() == pytest.approx((2 * loss.parts["mlm"] + task).item() / 3, rel=1e-5)
    loss.total.backward()
    assert without_gradient(network) == names(network, "heads.task.")
    assert objective.heads == (TLM_TASK, "masked_lm")


def test_texts_may_count_differently(texts: PackedTexts) -> None:
    network, of_text = shake(make_network()), np.linspace(0.1, 2, 24, dtype=np.float32)
    stream = stream_of(texts, network, masked=False)
    objective = make("task", stream, text_weights=of_text)
    batch = objective.batch(1)
    each = functional.cross_entropy(network.task_logits(network(batch), batch), batch.labels, reduction="none")
    relative = of_text[stream.positions(1)] / of_text.mean()
    expected = (each.detach().numpy() * relative).mean()
    assert objective.loss(network, batch).total.item() == pytest.approx(expected, rel=1e-5)


def test_windows_of_a_long_text_count_as_one_text_whatever_batch_they_meet_in(texts: PackedTexts) -> None:
    """Half of the texts are windows of one; over an epoch they have the share of one, not of half the batches."""
    network = make_network()
    of_text = np.array([1.0] * 12 + [1 / 12] * 12, dtype=np.float32)
    stream = stream_of(texts, network, masked=False)
    objective = make("task", stream, text_weights=of_text)
    shares = np.zeros(24)
    for step in range(stream.plan.batches_per_epoch):
        weights = objective.batch(step).weights
        assert weights is not None
        shares[stream.positions(step)] = weights.numpy()[: len(stream.positions(step))]
    assert shares[12:].sum() / shares.sum() == pytest.approx(1 / 13, rel=1e-5)


@dataclass
class ExactStream:
    """The texts of a stream without its fixed shape, masked by the same draw."""

    stream: TextStream
    texts: PackedTexts
    network: Network
    masking: Masking | None

    def positions(self, step: int) -> Any:
        return self.stream.positions(step)

    def batch(self, step: int) -> TextBatch:
        batch = lay_out(self.texts, self.positions(step), self.network.layout(int(self.texts.lengths.max())))
        return batch if self.masking is None else self.masking.apply(batch, generator(SEED, "mask", "any", step))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_in_a_room_has_the_same_loss_and_gradients(architecture: str, kind: str, texts: PackedTexts) -> None:
    network = shake(make_network(architecture, tlm_head=True))
    network.fixed_shapes = True
    masked = kind != "task"
    stream = stream_of(texts, network, masked=masked)
    options = {"joint": {"head": TLM_TASK}, "task": {"text_weights": np.linspace(0.1, 2, 24, dtype=np.float32)}}
    for step in (0, stream.plan.batches_per_epoch - 1):
        found = []
        for one in (stream, ExactStream(stream, texts, network, make_masking() if masked else None)):
            objective = make(kind, one, **options.get(kind, {}))
            batch = objective.batch(step)
            network.zero_grad()
            loss = objective.loss(network, batch)
            loss.total.backward()
            found.append((batch, loss.total.item(), gradients(network), objective.flops(network, batch)))
        (roomy, loss, by_room, flops), (exact, exact_loss, by_exact, exact_flops) = found
        assert len(roomy.input_ids) > len(exact.input_ids)
        assert loss == pytest.approx(exact_loss, rel=1e-5)
        assert by_room.keys() == by_exact.keys()
        for name, gradient in by_exact.items():
            assert by_room[name].allclose(gradient, rtol=1e-4, atol=2e-6), name
        assert flops == exact_flops > 0


def test_a_batch_with_nothing_masked_costs_nothing_and_breaks_nothing(texts: PackedTexts) -> None:
    network = shake(make_network())
    batch = lay_out(texts, np.arange(4), network.layout(16))
    everything = tuple(range(network.config.vocab_size))
    empty = Masking(0.3, 4, 100, everything).apply(batch, np.random.default_rng(0))
    loss = network.masked_lm_loss(network(empty), empty)
    loss.backward()
    assert (empty.masked, loss.item()) == (0, 0.0)
    assert all(gradient.eq(0).all() for gradient in gradients(network).values())


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_functions_of_seed_and_step(kind: str, texts: PackedTexts) -> None:
    network = make_network()

    def ids(seed: int, steps: Any) -> list[list[int]]:
        objective = make(kind, stream_of(texts, network, masked=kind != "task", seed=seed))
        return [objective.batch(step).input_ids.tolist() for step in steps]

    forwards = ids(3, range(7))
    assert forwards == ids(3, reversed(range(7)))[::-1]
    assert ids(4, range(7)) != forwards
    assert len({str(row) for row in forwards}) > 3


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_labels_travel_with_their_texts(texts: PackedTexts, fixed_shapes: bool) -> None:
    network = make_network()
    network.fixed_shapes = fixed_shapes
    stream = stream_of(texts, network, masked=False)
    objective = Classification("any", stream, np.arange(len(texts)))
    seen: list[int] = []
    for step in range(stream.plan.batches_per_epoch):
        batch = objective.batch(step)
        assert batch.labels is not None
        assert batch.weights is not None
        for row, position in enumerate(batch.labels[: batch.texts].tolist()):
            start, end = batch.offsets[row : row + 2].tolist()
            assert batch.input_ids[start:end].tolist() == texts[position].tolist()
            seen.append(position)
        assert batch.weights[: batch.texts].tolist() == pytest.approx([1 / batch.texts] * batch.texts)
        assert batch.labels[batch.texts :].eq(IGNORED).all()
        assert batch.weights[batch.texts :].eq(0).all()
        assert len(batch.labels) == len(batch.offsets) - 1
    assert sorted(seen) == list(range(len(texts)))


def test_the_same_masked_input_feeds_both_heads(texts: PackedTexts) -> None:
    objective = make("joint", stream_of(texts, make_network()))
    batch = objective.batch(0)
    assert batch.labels is not None
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    assert len(batch.labels) == 8
    assert set(batch.labels.tolist()) <= set(range(len(LABELS)))
    assert (batch.input_ids[batch.masked_positions] != batch.masked_targets).any()


def test_flops_count_the_heads_that_are_used(texts: PackedTexts) -> None:
    network = make_network()
    stream = stream_of(texts, network)
    mlm, joint, task = (make(kind, stream) for kind in ("mlm", "joint", "task"))
    batch = joint.batch(0)
    assert batch.masked > 8
    encoder = network.training_flops(batch)
    masked_lm, head = mlm.flops(network, batch) - encoder, task.flops(network, batch) - encoder
    assert joint.flops(network, batch) == pytest.approx(encoder + masked_lm + head)
    hidden, vocabulary = 16, network.config.vocab_size
    assert masked_lm == pytest.approx(6 * batch.masked * hidden * (hidden + vocabulary))
    assert head == pytest.approx(6 * 8 * hidden * (hidden + len(LABELS)))
