"""Losses of regression, multilabel and tagging equal those of stock models, also with masked LM and any padding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from endtask.config import BatchSize, ModelSettings
from endtask.encoders.batch import IGNORED, TextBatch, lay_out
from endtask.encoders.huggingface import to_classifier, to_masked_lm
from endtask.encoders.network import Network, build_network
from endtask.objectives.stream import TextStream
from endtask.objectives.task import FinetunedTask, FinetuningLoss
from endtask.objectives.task_losses import (
    Classification,
    JointTask,
    MultiLabel,
    Regression,
    Tagging,
    TaskObjective,
    task_objective,
)
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packing import pack_task_texts
from tests.tiny import ARCHITECTURES, MAX_LENGTH, by_itself, make_masking, make_texts, make_tokenizer, shake

KINDS = {"regression": Regression, "multilabel": MultiLabel, "token_classification": Tagging, "text": Classification}
LABELS = ("a", "b", "c")


def make_task(kind: str) -> Task:
    def label(number: int, words: tuple[str, ...]) -> Any:
        return {
            "regression": 10.0 + number % 7,
            "multilabel": tuple(name for place, name in enumerate(LABELS) if number >> place & 1),
            "token_classification": tuple(LABELS[(number + place) % 3] for place in range(len(words))),
            "text": LABELS[number % 3],
        }[kind]

    texts = [tuple(text.split()) for text in make_texts(24, longest=6)]
    rows = [
        Example(
            str(number), " ".join(words), label(number, words), tokens=words if kind == "token_classification" else None
        )
        for number, words in enumerate(texts)
    ]
    return Task.from_examples("any", {"train": rows, "dev": rows[:6]}, task_type=kind, test_fraction=0)  # type: ignore[arg-type]


def make_network(kind: str, architecture: str) -> Network:
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32}
    return shake(
        build_network(
            ModelSettings.model_validate({"architecture": architecture, "dropout": 0.0, **sizes}),
            vocabulary=len(tokenizer),
            special_ids={"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id},
            labels=LABELS,
            seed=0,
            task_type=kind,  # type: ignore[arg-type]
        )
    )


def make_objective(kind: str, network: Network, folder: Path, *, masked: bool = False, **options: Any) -> TaskObjective:
    task = make_task(kind)
    texts = pack_task_texts(task.train, make_tokenizer(), MAX_LENGTH, folder)
    masking = make_masking() if masked else None
    stream = TextStream("any", texts, network, batch_size=BatchSize.parse("8"), seed=0, masking=masking)
    return task_objective(task, "any", stream, **options)


def stock_inputs(network: Network, batch: TextBatch) -> dict[str, torch.Tensor]:
    assert batch.grid is not None
    present = batch.grid < len(batch.input_ids)
    where = batch.grid.clamp(max=len(batch.input_ids) - 1)
    return {"input_ids": torch.where(present, batch.input_ids[where], 0), "attention_mask": present.long()}


def stock_labels(kind: str, batch: TextBatch) -> torch.Tensor:
    assert batch.labels is not None
    if kind != "token_classification":
        return batch.labels
    assert batch.grid is not None
    padded = torch.cat([batch.labels, torch.tensor([IGNORED])])
    return padded[batch.grid.clamp(max=len(batch.labels))]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_the_stock_models(kind: str, architecture: str, tmp_path: Path) -> None:
    network = make_network(kind, architecture)
    objective = make_objective(kind, network, tmp_path)
    assert type(objective) is KINDS[kind]
    batch = by_itself(objective.batch(0))
    stock = to_classifier(network)
    expected = stock(**stock_inputs(network, batch), labels=stock_labels(kind, batch)).loss
    assert objective.loss(network, batch).total.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_joint_loss_reads_one_masked_text_twice(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, "lean")
    task = make_objective(kind, network, tmp_path, masked=True)
    joint = JointTask(task, rho2=3.0)
    batch = by_itself(joint.batch(0))
    assert batch.masked > 0
    loss = joint.loss(network, batch)
    labels = torch.full_like(batch.input_ids, IGNORED)
    assert batch.masked_positions is not None
    assert batch.masked_targets is not None
    labels[batch.masked_positions] = batch.masked_targets
    tokens = replace(batch, labels=labels)
    mlm = to_masked_lm(network)(
        **stock_inputs(network, batch), labels=stock_labels("token_classification", tokens)
    ).loss
    assert loss.parts["mlm"].item() == pytest.approx(mlm.item(), rel=1e-4)
    assert loss.parts["task"].item() == pytest.approx(task.loss(network, batch).total.item(), rel=1e-5)
    expected = (3 * loss.parts["mlm"] + loss.parts["task"]) / 4
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_fixed_shapes_changes_nothing(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, "lean")
    free = make_objective(kind, network, tmp_path / "free")
    network.fixed_shapes = True
    fixed = make_objective(kind, network, tmp_path / "fixed")
    positions = fixed.stream.positions(1)
    padded, bare = fixed.batch(1), lay_out(free.stream.texts, positions, network.layout(MAX_LENGTH))
    assert len(padded.offsets) > len(bare.offsets)
    expected = free.loss(network, free.answered(bare, positions)).total.item()
    assert fixed.loss(network, padded).total.item() == pytest.approx(expected, rel=1e-5)
    shapes = {tuple(fixed.batch(step).labels.shape) for step in range(3)}  # type: ignore[union-attr]
    assert len(shapes) == 1


def test_scores_are_learned_on_a_scale_of_their_own(tmp_path: Path) -> None:
    network = make_network("regression", "lean")
    objective = make_objective("regression", network, tmp_path)
    labels = np.concatenate([objective.batch(step).labels.numpy() for step in range(3)])  # type: ignore[union-attr]
    assert abs(labels.mean()) < 0.2
    assert labels.std() == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_read_texts_or_tokens_in_the_count_of_costs(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, "lean")
    objective = make_objective(kind, network, tmp_path)
    batch = objective.batch(0)
    head = objective.flops(network, batch) - network.training_flops(batch)
    rows = batch.real_tokens if kind == "token_classification" else batch.texts
    assert head == pytest.approx(6 * rows * 16 * (16 + network.config.num_labels))


def both_ways(kind: str, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """What torch says of the divergences between the distributions that two answers are, in each row."""
    found: list[Any] = []
    for logits in (one, other):
        if kind == "regression":
            found.append(Normal(logits[:, 0], 1.0))
        elif kind == "multilabel":
            found.append(Bernoulli(logits=logits))
        else:
            found.append(Categorical(logits=logits))
    each = kl_divergence(*found) + kl_divergence(*found[::-1])
    return each.mean(-1) if kind == "multilabel" else each


@pytest.mark.parametrize("kind", KINDS)
def test_rdrop_compares_two_readings_as_distributions(kind: str, tmp_path: Path) -> None:
    network = make_network(kind, "lean").train()
    network.set_dropout(0.3)
    learned = make_objective(kind, network, tmp_path)
    objective = FinetunedTask(learned, FinetuningLoss(rdrop=2.0))
    batch = by_itself(objective.batch(0))
    torch.manual_seed(5)
    one, other = network.task_logits(network(batch.twice()), batch.twice()).chunk(2)
    torch.manual_seed(5)
    loss = objective.loss(network, batch)
    assert batch.weights is not None
    divergence = (both_ways(kind, one, other) * batch.weights).sum() / 2
    task = (learned.answer_loss(one, batch) + learned.answer_loss(other, batch)) / 2
    assert divergence.item() > 1e-3
    assert loss.parts["rdrop"].item() == pytest.approx(divergence.item(), rel=1e-4)
    assert loss.total.item() == pytest.approx((task + 2.0 * divergence).item(), rel=1e-4)
    assert objective.passes == 2
