"""Heads trained on stored vectors against heads on the whole network, and against a plain loop."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from endtask.config import ModelSettings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network, build_network
from endtask.experiments.few_shot.few_shot_scores import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.few_shot_trials import PHASE_SETTINGS, FewShotTrials
from endtask.experiments.few_shot.label_draws import RANDOM_STREAM, TaskRows, make_draws
from endtask.experiments.few_shot.trial_rows import FeatureCache, PredictionUnits, TrialRows, unit_vectors
from endtask.objectives.contrastive import contrastive_loss
from endtask.records import Example
from endtask.seeds import derive
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, pack_examples, pack_tagged
from endtask.training.finetune_phase import END_TASK
from endtask.training.optimizer import Optimizer
from tests.tiny import ARCHITECTURES, MAX_LENGTH, WORDS, make_texts, make_tokenizer, shake

CPU = DeviceContext(torch.device("cpu"))


def make_task(kind: str) -> Task:
    """Texts by whether their first word comes early among the words; words by whether they do."""

    def label(word: str) -> str:
        return "early" if WORDS.index(word) < len(WORDS) // 2 else "late"

    examples = []
    for number, text in enumerate(make_texts(72, longest=7)):
        words = text.split()
        tags = tuple(label(word) for word in words)
        answer = tags if kind == "token_classification" else tags[0]
        examples.append(
            Example(str(number), text, answer, tokens=tuple(words) if kind == "token_classification" else None)
        )
    parts = {"train": examples[:48], "dev": examples[48:56], "test": examples[56:]}
    return Task.from_examples("words", parts, task_type=kind)


class Toy:
    """A network over a task, and all that its runs need."""

    def __init__(self, kind: str, architecture: str, plan: FewShotSpec, folder: Path) -> None:
        self.task, tokenizer = make_task(kind), make_tokenizer()
        task = self.task
        rows = TaskRows.of(task)
        self.texts: PackedTexts = (
            pack_tagged([example.tokens or () for example in rows.examples], tokenizer, MAX_LENGTH, folder)
            if kind == "token_classification"
            else pack_examples([(example.text, None) for example in rows.examples], tokenizer, MAX_LENGTH, folder)
        )
        self.plan = plan
        self.rows = TrialRows(plan, (12, 20), make_draws(rows, plan), PredictionUnits(task, rows, self.texts))
        self.network: Network = shake(
            build_network(
                ModelSettings.model_validate(
                    {
                        "architecture": architecture,
                        "dropout": plan.dropout,
                        "hidden_size": 16,
                        "num_hidden_layers": 1,
                        "num_attention_heads": 2,
                        "max_position_embeddings": 32,
                    }
                ),
                vocabulary=len(tokenizer),
                special_ids={
                    "pad": tokenizer.pad_token_id,
                    "cls": tokenizer.cls_token_id,
                    "sep": tokenizer.sep_token_id,
                },
                labels=task.labels,
                seed=0,
                task_type=kind,
            )
        )

    def cache(self) -> FeatureCache:
        read, units = self.rows.all_rows(), self.rows.units
        vectors = unit_vectors(self.network, self.texts, units, read, CPU)
        return FeatureCache(vectors, units.of(read), len(units.classes))

    def results(self, trials: Sequence[FewShotTrial], *, cached: bool) -> list[FewShotResult]:
        """Train heads on stored vectors, or through the whole network."""
        cache = self.cache() if cached else None
        training = FewShotTrials(self.rows, self.network, self.texts, CPU, "head", cache=cache)
        return list(training.train(trials, self.network.reset_task_head))


def assert_alike(found: Sequence[FewShotResult], wanted: Sequence[FewShotResult]) -> None:
    assert [one.trial for one in found] == [one.trial for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.epoch == other.epoch
        assert one.predictions == other.predictions
        assert np.log(one.held_out_perplexity) == pytest.approx(np.log(other.held_out_perplexity), abs=1e-5)
        assert one.losses == pytest.approx(other.losses, abs=1e-5)


@pytest.mark.parametrize("kind", ["text", "token_classification"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_stored_vectors_are_those_of_the_network(architecture: str, kind: str, tmp_path: Path) -> None:
    spec = FewShotSpec(samples=2, epochs=3, batch_size=8, dropout=0.0, learning_rates=(2e-2,), seeds=(0,))
    toy = Toy(kind, architecture, spec, tmp_path)
    trials = list(spec.trials((12, 20), "head"))
    assert_alike(toy.results(trials, cached=True), toy.results(trials, cached=False))


def test_patience_ends_trials_earlier(tmp_path: Path) -> None:
    spec = FewShotSpec(samples=4, epochs=12, batch_size=4, dropout=0.0, patience=1, learning_rates=(0.1,))
    toy = Toy("text", "lean", spec, tmp_path)
    trials = list(spec.trials((12,), "head"))
    found = toy.results(trials, cached=True)
    patient = Toy("text", "lean", spec.model_copy(update={"patience": None}), tmp_path).results(trials, cached=True)
    assert any(one.epoch < other.epoch for one, other in zip(found, patient, strict=True))
    assert all(one.epoch <= other.epoch for one, other in zip(found, patient, strict=True))


def plain_losses(toy: Toy, trial: FewShotTrial) -> list[float]:
    """Return the held-out losses of all epochs, with a head, an optimizer and dropout of its own."""
    rows, cache, losses = toy.rows, toy.cache(), []
    toy.network.reset_task_head(trial.seed)
    head = copy.deepcopy(toy.network.heads[TASK])
    optimizer = Optimizer(
        nn.ModuleDict({"heads": head}), PHASE_SETTINGS, torch.device("cpu"), learning_rate=trial.learning_rate
    )
    batches, held_out = rows.batches(trial), rows.units.of(rows.held_out(trial))
    for step in range(batches.batches_per_epoch * toy.plan.epochs):
        units = rows.units.of(rows.train(trial)[batches.positions(step)])
        torch.manual_seed(derive(derive(toy.plan.seed, RANDOM_STREAM, trial.seed), "dropout", step))
        functional.cross_entropy(head.train()(cache[units]), torch.from_numpy(rows.units.classes[units])).backward()
        optimizer.step(1.0)
        if (step + 1) % batches.batches_per_epoch == 0:
            classes = torch.from_numpy(rows.units.classes[held_out])
            losses.append(functional.cross_entropy(head.eval()(cache[held_out]), classes).item())
    return losses


@pytest.mark.parametrize("kind", ["text", "token_classification"])
@pytest.mark.parametrize("architecture", ["lean", "roberta"])
def test_heads_learn_as_in_a_plain_loop(architecture: str, kind: str, tmp_path: Path) -> None:
    spec = FewShotSpec(samples=2, epochs=3, batch_size=8, dropout=0.3, learning_rates=(1e-2,))
    toy = Toy(kind, architecture, spec, tmp_path)
    for result in toy.results(list(spec.trials((12,), "head")), cached=True):
        losses = plain_losses(toy, result.trial)
        assert result.epoch == int(np.argmin(losses)) + 1
        assert result.held_out_perplexity == pytest.approx(np.exp(min(losses)), abs=1e-5)


def test_trained_encoders_leave_frozen_parts_alone(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=1, seeds=(0,), epochs=1, batch_size=8, learning_rates=(1e-2,))
    toy = Toy("text", "lean", plan, tmp_path)
    before = {name: weight.detach().clone() for name, weight in toy.network.named_parameters()}
    moved: dict[str, set[str]] = {}
    for trained in ("head", "transformer", "all"):
        runs = FewShotTrials(toy.rows, toy.network, toy.texts, CPU, trained)
        for _ in runs.train(list(plan.trials((12,), "all")), None):
            after = dict(toy.network.named_parameters())
            moved[trained] = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert all(name.startswith("heads.task.") for name in moved["head"])
    assert any(name.startswith("encoder.layers.") for name in moved["transformer"])
    assert not any(name.startswith("encoder.embeddings.") for name in moved["transformer"])
    assert "encoder.embeddings.tok_embeddings.weight" in moved["all"]
    assert not any(name.startswith("heads.masked_lm.") for name in moved["all"])
    assert all(torch.equal(weight, before[name]) for name, weight in toy.network.named_parameters())
    assert all(weight.requires_grad for weight in toy.network.parameters())


def test_a_trained_encoder_may_learn_pairs_of_labelled_texts(tmp_path: Path) -> None:
    spec = FewShotSpec(samples=1, epochs=2, batch_size=8, dropout=0.0, train=("all",), contrastive=2.0)
    toy = Toy("text", "lean", spec, tmp_path)
    trial = next(spec.trials((12,), "all"))
    objective = FewShotTrials(toy.rows, toy.network, toy.texts, CPU, "all").phase(trial).objectives[END_TASK]
    batch = objective.batch(0)
    hidden = toy.network(batch)
    expected = contrastive_loss(toy.network.pooled(hidden, batch), batch.labels)
    loss = objective.loss(toy.network, batch)
    assert loss.parts["contrastive"].item() == pytest.approx(expected.item(), rel=1e-5)
    whole = loss.parts["task"] + 2.0 * expected
    assert loss.total.item() == pytest.approx(batch.text_share * whole.item(), rel=1e-5)
