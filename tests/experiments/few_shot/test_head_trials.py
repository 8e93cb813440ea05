"""Heads trained side by side against the same heads trained one by one, by the training loop and by a plain one."""

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
from endtask.experiments.few_shot import head_trials
from endtask.experiments.few_shot.encoder_trials import EncoderTrials
from endtask.experiments.few_shot.features import FeatureCache, unit_vectors
from endtask.experiments.few_shot.few_shot_results import FewShotResult
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec, FewShotTrial
from endtask.experiments.few_shot.head_trials import HeadTrials
from endtask.experiments.few_shot.label_draws import TaskRows, make_draws
from endtask.experiments.few_shot.prediction_units import PredictionUnits
from endtask.experiments.few_shot.stacked_heads import Weights, dropout_factors, with_given_dropout
from endtask.experiments.few_shot.trial_rows import TrialRows, phase_settings
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, pack_examples, pack_tagged
from endtask.training.optimizer import build_optimizer
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

    def first_weights(self, seed: int) -> Weights:
        self.network.reset_task_head(seed)
        return {name: weight.detach().clone() for name, weight in self.network.heads[TASK].named_parameters()}

    def cache(self) -> FeatureCache:
        read, units = self.rows.all_rows(), self.rows.units
        vectors = unit_vectors(self.network, self.texts, units, read, CPU)
        return FeatureCache(vectors, units.of(read), len(units.classes))

    def together(self, keys: Sequence[FewShotTrial]) -> list[FewShotResult]:
        runs = HeadTrials(self.rows, self.network.heads[TASK], self.first_weights, self.cache())
        return sorted((one for some in runs.train(keys) for one in some), key=lambda result: result.trial)

    def one_by_one(self, keys: Sequence[FewShotTrial]) -> list[FewShotResult]:
        runs = EncoderTrials(self.rows, self.network, self.texts, CPU, "head")
        return sorted(
            (one for some in runs.train(keys, self.network.reset_task_head) for one in some), key=lambda r: r.trial
        )


def assert_alike(found: Sequence[FewShotResult], wanted: Sequence[FewShotResult]) -> None:
    assert [one.trial for one in found] == [one.trial for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.epoch == other.epoch
        assert one.predictions == other.predictions
        assert np.log(one.held_out_perplexity) == pytest.approx(np.log(other.held_out_perplexity), abs=1e-5)
        assert one.losses == pytest.approx(other.losses, abs=1e-5)


@pytest.mark.parametrize("kind", ["text", "token_classification"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_side_by_side_is_the_training_loop(architecture: str, kind: str, tmp_path: Path) -> None:
    plan = FewShotSpec(samples=2, epochs=4, batch_size=8, dropout=0.0, learning_rates=(1e-3, 2e-2))
    toy = Toy(kind, architecture, plan, tmp_path)
    keys = list(plan.trials((12, 20), "head"))
    assert len(keys) == 16
    assert_alike(toy.together(keys), toy.one_by_one(keys))


def test_patience_ends_runs_side_by_side_as_it_ends_them_alone(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=4, epochs=12, batch_size=4, dropout=0.0, patience=1, learning_rates=(0.1,))
    toy = Toy("text", "lean", plan, tmp_path)
    keys = list(plan.trials((12,), "head"))
    found = toy.together(keys)
    assert_alike(found, toy.one_by_one(keys))
    patient = Toy("text", "lean", plan.model_copy(update={"patience": None}), tmp_path).together(keys)
    assert any(one.epoch < other.epoch for one, other in zip(found, patient, strict=True))


def plain_loop(toy: Toy, key: FewShotTrial) -> tuple[list[float], Weights]:
    """Held-out losses of all epochs and the last weights, with a head, an optimizer and dropout of its own."""
    rows, cache, losses = toy.rows, toy.cache(), []
    toy.first_weights(key.seed)
    head = with_given_dropout(copy.deepcopy(toy.network.heads[TASK]))
    holder = nn.ModuleDict({"heads": head})
    optimizer = build_optimizer(holder, phase_settings(), torch.device("cpu"), learning_rate=key.learning_rate)
    names = [name for name, _ in head.named_buffers() if name.endswith("factors")]
    batches, held_out = rows.batches(key), rows.units.of(rows.held_out(key))
    for step in range(batches.batches_per_epoch * toy.plan.epochs):
        units = rows.units.of(rows.train(key)[batches.positions(step)])
        for name in names:
            noise = dropout_factors(key.seed, step, name, len(units), 16, toy.plan.dropout)
            head.get_submodule(name.rpartition(".")[0]).factors = noise
        loss = functional.cross_entropy(head(cache[units]), torch.from_numpy(rows.units.classes[units]))
        loss.backward()
        optimizer.step(1.0)
        if (step + 1) % batches.batches_per_epoch == 0:
            for name in names:
                head.get_submodule(name.rpartition(".")[0]).factors = torch.ones(())
            answer = torch.from_numpy(rows.units.classes[held_out])
            losses.append(functional.cross_entropy(head(cache[held_out]), answer).item())
    return losses, {name: weight.detach() for name, weight in head.named_parameters()}


@pytest.mark.parametrize("kind", ["text", "token_classification"])
@pytest.mark.parametrize("architecture", ["lean", "bert", "roberta"])
def test_dropout_is_that_of_a_plain_loop(architecture: str, kind: str, tmp_path: Path) -> None:
    plan = FewShotSpec(samples=2, epochs=3, batch_size=8, dropout=0.3, learning_rates=(1e-2,))
    toy = Toy(kind, architecture, plan, tmp_path)
    for result in toy.together(list(plan.trials((12,), "head"))):
        losses, _ = plain_loop(toy, result.trial)
        assert result.epoch == int(np.argmin(losses)) + 1
        assert result.held_out_perplexity == pytest.approx(np.exp(min(losses)), abs=1e-5)


def test_a_run_does_not_depend_on_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = FewShotSpec(samples=3, epochs=2, batch_size=8, learning_rates=(1e-2,))
    toy = Toy("tags", "lean", plan, tmp_path)
    keys = list(plan.trials((12,), "head"))
    wanted = toy.together(keys)
    assert_alike(toy.together(keys[3:]), [one for one in wanted if one.trial in keys[3:]])
    monkeypatch.setattr(head_trials, "_WEIGHTS_AT_ONCE", 1)
    assert_alike(toy.together(keys), wanted)


def test_threads_change_nothing_but_the_last_bits(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=3, epochs=3, batch_size=8, learning_rates=(1e-2, 1e-3))
    toy = Toy("tags", "lean", plan, tmp_path)
    keys = list(plan.trials((12, 20), "head"))
    alone, before = toy.together(keys), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = toy.together(keys)
    finally:
        torch.set_num_threads(before)
    assert_alike(together, alone)


def test_trained_encoders_leave_frozen_parts_alone(tmp_path: Path) -> None:
    plan = FewShotSpec(samples=1, seeds=(0,), epochs=1, batch_size=8, learning_rates=(1e-2,))
    toy = Toy("text", "lean", plan, tmp_path)
    before = {name: weight.detach().clone() for name, weight in toy.network.named_parameters()}
    moved: dict[str, set[str]] = {}
    for trained in ("head", "transformer", "all"):
        runs = EncoderTrials(toy.rows, toy.network, toy.texts, CPU, trained)
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


def test_vectors_of_what_is_not_asked_for_are_any_even_where_the_first_unit_was_never_read() -> None:
    vectors = torch.arange(6.0).view(3, 2)
    cache = FeatureCache(vectors, np.array([4, 2, 5]), total=7)
    found = cache[np.array([[2, 5], [4, -1]])]
    assert found[0].tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert found[1, 0].tolist() == [0.0, 1.0]
    assert found.shape == (2, 2, 2)
