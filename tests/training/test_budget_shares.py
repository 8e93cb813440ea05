"""What fine-tuning needs comes first: `finetune.budget_share: auto` reserves all epochs of all seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.task import Task
from endtask.training.budget_plan import MOST_FOR_FINETUNING
from endtask.training.finetune import finetune
from endtask.training.finetune_phase import amount_for_all_epochs, finetune_phase, plan_in_words
from endtask.training.initial_network import network_for
from endtask.training.prefetch import batches_of
from endtask.training.pretrain import WEIGHTS

from .conftest import CPU, MakeStage, changed, pretrained_in


def test_the_amount_is_that_of_all_steps(task: Task, packed: Path, run_settings: Settings) -> None:
    settings = changed(run_settings, budget="1Mtok", finetune={"learning_rate": [1e-3, 1e-4]})
    network = network_for(task, packed, settings)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = amount_for_all_epochs(network, task, packed, settings, CPU)
    phase = finetune_phase(network_for(task, packed, settings), task, packed, settings, CPU, seed=0)
    read = sum(batch.tokens for step in range(phase.steps) for batch in batches_of(phase, step))
    assert found == pytest.approx(2 * 2 * read, rel=0.05)  # the cost of a step is a mean over 50
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())


def test_all_epochs_are_trained_and_pretraining_gets_the_rest(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, make_stage: MakeStage
) -> None:
    settings = changed(run_settings, budget="20ktok")
    start, counts = pretrained_in(tmp_path, task, packed, settings)
    share = counts["finetuning_share"]
    assert 0 < share < MOST_FOR_FINETUNING
    fine = finetune(task, packed, start, settings, make_stage("finetune"))
    phase = finetune_phase(network_for(task, packed, settings), task, packed, settings, CPU, seed=0)
    assert fine["steps_per_seed"] == phase.steps
    assert counts["tokens"] + fine["tokens"] == pytest.approx(20_000, rel=0.1)
    explicit = changed(settings, finetune={"budget_share": share})
    other, _ = pretrained_in(tmp_path / "explicit", task, packed, explicit)
    tensors, expected = (load_tensors(folder / WEIGHTS)[0] for folder in (start, other))
    assert all(tensors[name].equal(expected[name]) for name in expected), "planning leaves no trace in the weights"


@pytest.mark.parametrize(
    ("budget", "amount", "words"),
    [
        ("10min", 300.0, ("pre-training for 5 min 0 s", "3 x 10 epochs 5 min 0 s")),
        ("90s", 85.0, ("too small", "about 1 min 25 s", "try --budget 3min")),
        ("1Mtok", 4e5, ("pre-training for 60%", "3 x 10 epochs 40%")),
        ("1Mtok", 9e5, ("too small", "try --budget 1800000tok")),
    ],
)
def test_the_run_says_what_a_budget_buys(budget: str, amount: float, words: tuple[str, ...]) -> None:
    line = plan_in_words(Settings.model_validate({"budget": budget, "finetune": {"epochs": 10}}), amount)
    from_checkpoint = {"budget": budget, "finetune": {"epochs": 10}, "model": {"path": "bert"}}
    enough = amount <= 0.9 * Settings.model_validate(from_checkpoint).budget.amount
    assert ("too small" in plan_in_words(Settings.model_validate(from_checkpoint), amount)) == (not enough)
    assert [word for word in words if word not in line] == []
