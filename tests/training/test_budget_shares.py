"""What fine-tuning needs comes first: `finetune.budget_share: auto` reserves all epochs of all seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.io.run_layout import BEST_WEIGHTS
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


def test_rdrop_where_the_budget_holds_all_epochs_with_it(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, make_stage: MakeStage
) -> None:
    """With half of the tokens that both readings of all epochs need, the run is the same as one without R-Drop."""
    plain = changed(run_settings, budget="1Mtok", model={"dropout": 0.1}, finetune={"budget_share": 0.5})
    network = network_for(task, packed, plain)
    needed = amount_for_all_epochs(network, task, packed, plain, CPU)
    start, _ = pretrained_in(tmp_path, task, packed, changed(plain, budget="5ktok"))
    steps, weights, amounts = {}, {}, {}
    for name, rdrop, budget in (
        ("enough", "auto", 5 * needed),
        ("twice", 1.0, 5 * needed),
        ("half", "auto", 2 * needed),
        ("once", 0.0, 2 * needed),
    ):
        settings = changed(plain, budget=f"{budget / 1000:.2f}ktok", finetune={"rdrop": rdrop})
        amounts[name] = amount_for_all_epochs(network, task, packed, settings, CPU)
        stage = make_stage(f"finetune-{name}")
        steps[name] = finetune(task, packed, start, settings, stage)["steps_per_seed"]
        weights[name] = load_tensors(stage.partial / f"seed-{settings.finetune.seeds[0]}" / BEST_WEIGHTS)[0]
    for chosen, same in (("enough", "twice"), ("half", "once")):
        assert steps[chosen] == steps[same]
        assert all(value.equal(weights[same][name]) for name, value in weights[chosen].items())
    assert not all(value.equal(weights["once"][name]) for name, value in weights["twice"].items())
    assert amounts["enough"] == amounts["twice"] == pytest.approx(2 * needed)
    assert amounts["half"] == amounts["once"] == pytest.approx(needed)
