"""Pre-training and fine-tuning on a learnable task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from endtask.config import Budget, Settings
from endtask.encoders.weights import load_tensors, load_weights
from endtask.errors import InputError
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.task_metrics import Measure
from endtask.io.run_layout import BEST_WEIGHTS, SEED_RESULT
from endtask.io.selection_table import write_selection
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.packing import pack
from endtask.training import finetune as finetune_module
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.dev_eval import DevScores
from endtask.training.finetune import finetune
from endtask.training.finetune_phase import finetune_phase
from endtask.training.initial_network import network_for
from endtask.training.metrics_file import read_metrics
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS, pretrain
from endtask.training.pretrain_phase import pretrain_phase
from tests.evaluation.sklearn_scores import METRICS

from .conftest import CPU, MakeStage, changed

Pretrained = tuple[Path, dict[str, Any]]


def test_stage_1_moves_every_weight_in_the_steps_it_planned(
    pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings
) -> None:
    folder, counts = pretrained
    assert counts["steps"] == 40
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["plan"]["steps"] == 40
    assert not (folder / CHECKPOINT).exists()
    network = network_for(task, packed, run_settings)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    load_weights(folder / WEIGHTS, network)
    moved = {name for name, value in network.state_dict().items() if not value.equal(before[name])}
    assert moved == set(before)
    assert counts["flops"] == 6.0 * counts["parameters"] * counts["tokens"]
    assert counts["padded_tokens"] >= counts["tokens"] > 0
    assert counts["matmul_flops"] > 0
    assert read_metrics(folder / "metrics.jsonl")[-1]["step"] == 40


def test_stage_1_keeps_its_best_weights_on_dev_too(pretrained: Pretrained) -> None:
    folder, counts = pretrained
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "dev/macro_f1" in row]
    assert [row["step"] for row in rows] == [10, 20, 30, 40]
    best = max(rows, key=lambda row: row["dev/macro_f1"])
    assert (counts["best_step"], counts["dev"]["macro_f1"]) == (best["step"], best["dev/macro_f1"])
    same = (folder / BEST_PRETRAINED).read_bytes() == (folder / WEIGHTS).read_bytes()
    assert same == (counts["best_step"] == 40)


def test_stage_1_without_external_text_is_the_task_alone(
    task: Task, run_settings: Settings, packed: Path, tmp_path: Path
) -> None:
    write_selection(tmp_path / "none.parquet", [])
    pack(task, tmp_path / "none.parquet", run_settings, tmp_path / "pack")
    schedule = {
        "none": pretrain_phase(task, tmp_path / "pack", run_settings),
        "both": pretrain_phase(task, packed, run_settings),
        "inf": pretrain_phase(task, packed, changed(run_settings, pretrain={"weighting": {"rho1": "inf"}})),
    }
    found = {
        name: [phase.weighting.schedule(step)[0].objective for step in range(4)] for name, phase in schedule.items()
    }
    assert found == {
        "none": ["task"] * 4,
        "both": ["corpus", "task"] * 2,
        "inf": ["corpus"] * 4,
    }
    assert [sorted(phase.objectives) for phase in schedule.values()] == [sorted(set(names)) for names in found.values()]
    with pytest.raises(InputError, match=r"weighting\.rho1.*no corpus text"):
        pretrain_phase(task, tmp_path / "pack", changed(run_settings, pretrain={"weighting": {"rho1": "inf"}}))


def test_a_plan_is_made_once(task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage) -> None:
    stage = make_stage("pretrain")
    stage.start()
    stage.set_plan(steps=3)
    assert pretrain(task, packed, changed(run_settings, budget="5ktok"), make_stage("pretrain"))["steps"] == 3


def test_stage_1_may_have_a_seed_of_its_own(task: Task, packed: Path, run_settings: Settings) -> None:
    """Weights, order of texts, masks and dropout follow `pretrain.seed`; heads and batches of fine-tuning do not."""
    own = changed(run_settings, pretrain={"seed": 5}, seed=9)
    phases = [pretrain_phase(task, packed, one) for one in (changed(run_settings, seed=5), own, run_settings)]
    expected, found, other = phases
    assert (own.pretrain_seed, run_settings.pretrain_seed) == (5, 0)
    assert found.seed == expected.seed != other.seed
    for name, value in found.network.state_dict().items():
        assert value.equal(expected.network.state_dict()[name]), name
    assert not found.network.embeddings.equal(other.network.embeddings)
    for name in ("corpus", "task"):
        ids = [phase.objectives[name].batch(3).input_ids for phase in phases]  # type: ignore[attr-defined]
        assert ids[0].equal(ids[1])
        assert not ids[1].equal(ids[2])
    stage_2 = [
        finetune_phase(network_for(task, packed, settings), task, packed, settings, CPU, seed=0)
        for settings in (run_settings, changed(run_settings, pretrain={"seed": 5}))
    ]
    heads = [phase.network.heads["task"].state_dict() for phase in stage_2]
    assert all(value.equal(heads[1][name]) for name, value in heads[0].items())
    assert stage_2[0].seed == stage_2[1].seed


def test_a_new_head_for_each_seed_on_the_same_body(
    pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings
) -> None:
    network = network_for(task, packed, run_settings)
    heads = []
    for seed in (0, 1, 0):
        load_weights(pretrained[0] / WEIGHTS, network)
        finetune_phase(network, task, packed, run_settings, CPU, seed=seed)
        heads.append({name: value.clone() for name, value in network.state_dict().items()})
    differ = {name for name, value in heads[0].items() if not value.equal(heads[1][name])}
    assert differ
    assert all(name.startswith("heads.task.") for name in differ)
    assert all(value.equal(heads[2][name]) for name, value in heads[0].items())
    fresh, _ = load_tensors(pretrained[0] / WEIGHTS)
    assert all(not fresh[name].equal(heads[0][name]) for name in differ)


def test_stage_2_learns_the_task_and_saves_what_it_scored(
    pretrained: Pretrained, task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage
) -> None:
    settings = changed(run_settings, finetune={"epochs": 12, "learning_rate": 1e-2}, model={"dropout": 0.0})
    stage = make_stage("finetune")
    counts = finetune(task, packed, pretrained[0], settings, stage)
    assert counts["steps_per_seed"] == 48
    network = network_for(task, packed, settings)
    for result in counts["seeds"]:
        folder = stage.partial / f"seed-{result['seed']}"
        rows = [row for row in read_metrics(folder / "metrics.jsonl") if "dev/macro_f1" in row]
        assert [row["step"] for row in rows] == list(range(4, 49, 4)), "dev is scored after each epoch"
        best = max(rows, key=lambda row: row["dev/macro_f1"])
        assert (result["best_step"], result["dev"]["macro_f1"]) == (best["step"], best["dev/macro_f1"])
        load_weights(folder / BEST_WEIGHTS, network)
        probabilities = class_probabilities(network, PackedTexts(packed / "dev"), batch_size=5, context=CPU)
        truth, predicted = task.label_numbers("dev"), probabilities.argmax(-1)
        scores = {name: metric(truth, predicted) for name, metric in METRICS.items()}
        assert scores == pytest.approx({name: result["dev"][name] for name in scores})
        assert result["dev"]["accuracy"] > 0.8
        assert result["steps"] == 48
        assert not (folder / CHECKPOINT).exists()
    for name in ("tokens", "padded_tokens", "flops", "matmul_flops"):
        assert counts[name] == sum(result[name] for result in counts["seeds"]) > 0


def test_stage_2_keeps_the_first_of_the_best_epochs(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([0.2, 0.9, 0.9, 0.5])
    monkeypatch.setattr(Measure, "all_scores", lambda *_: {"macro_f1": next(scores)})
    kept: list[bytes] = []
    original = finetune_module.run_stage_phase

    def watch(phase: Any, folder: Path, *given: Any, **options: Any) -> Any:
        keep = options["callback"].on_save

        def watched(state: Any) -> None:
            keep(state)
            kept.append((folder / BEST_WEIGHTS).read_bytes())

        options["callback"] = replace(options["callback"], on_save=watched)
        return original(phase, folder, *given, **options)

    monkeypatch.setattr(finetune_module, "run_stage_phase", watch)
    settings = changed(run_settings, finetune={"epochs": 4, "seeds": [5]})
    stage = make_stage("finetune")
    (result,) = finetune(task, packed, pretrained[0], settings, stage)["seeds"]
    assert (result["best_step"], result["dev"]["macro_f1"]) == (8, 0.9)
    assert kept[0] != kept[1] == kept[2] == kept[3]


def test_best_weights_that_training_went_back_behind_are_not_kept(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path
) -> None:
    network, best = network_for(task, packed, run_settings), tmp_path / BEST_WEIGHTS
    scores = DevScores(network, task, packed, run_settings, CPU, best, patience=None)
    state: dict[str, Any] = {}
    scores.score(5, state)
    assert state["best_step"] == 5
    assert not best.exists(), "written when a checkpoint is, or at the end"
    scores.save_best({"best_step": 3})  # the state of the checkpoint that trouble led back to
    assert not best.exists()
    state = {}
    scores.score(7, state)
    scores.save_best(state)
    assert load_tensors(best)[0].keys() == network.state_dict().keys()


def test_finished_seeds_are_not_trained_again(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = finetune(task, packed, pretrained[0], run_settings, make_stage("finetune"))
    folder = make_stage("finetune").partial
    weights = (folder / "seed-1" / BEST_WEIGHTS).read_bytes()
    (folder / "seed-1" / SEED_RESULT).unlink()
    (folder / "seed-1" / BEST_WEIGHTS).unlink()
    labels = []
    original = finetune_module.run_stage_phase
    monkeypatch.setattr(
        finetune_module,
        "run_stage_phase",
        lambda *given, **options: labels.append(options["label"]) or original(*given, **options),
    )
    assert finetune(task, packed, pretrained[0], run_settings, make_stage("finetune")) == first
    assert labels == ["finetune seed 1"]
    assert (folder / "seed-1" / BEST_WEIGHTS).read_bytes() == weights


@pytest.mark.parametrize(
    ("budget", "finetuning", "steps"),
    [
        ("1tok", {}, 4),
        ("100Mtok", {}, 12),
        ("1e29flops", {}, 12),
        ("5steps", {}, 12),
        ("100Mtok", {"max_steps": 7}, 7),
        ("1tok", {"max_steps": 7}, 4),
        ("1tok", {"max_steps": 3}, 3),
        ("5steps", {"max_steps": 3, "epochs": 1}, 3),
    ],
)
def test_stage_2_takes_an_epoch_at_least_and_what_was_asked_for_at_most(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    budget: str,
    finetuning: dict[str, int],
    steps: int,
) -> None:
    settings = changed(run_settings, budget=budget, finetune={**finetuning, "seeds": [0]})
    counts = finetune(task, packed, pretrained[0], settings, make_stage("finetune"))
    assert counts["steps_per_seed"] == counts["seeds"][0]["steps"] == steps


@pytest.mark.parametrize("rates", [[3e-3], [3e-3, 1e-3, 1e-4]])
def test_a_token_budget_for_stage_2_is_kept_by_all_rates_and_seeds_together(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    rates: list[float],
) -> None:
    finetuning = {"epochs": 50, "budget_share": 0.5, "learning_rate": rates}
    settings = changed(run_settings, budget="12ktok", finetune=finetuning)
    counts = finetune(task, packed, pretrained[0], settings, make_stage("finetune"))
    allowed = Budget.parse("12ktok").amount * 0.5
    assert 0.9 * allowed < counts["tokens"] <= 1.05 * allowed


def test_an_epoch_that_is_more_than_the_budget_is_told(
    pretrained: Pretrained,
    task: Task,
    packed: Path,
    run_settings: Settings,
    make_stage: MakeStage,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(budget: str) -> tuple[int, str]:
        settings = changed(run_settings, budget=budget, finetune={"epochs": 50, "budget_share": 0.5})
        steps = finetune(task, packed, pretrained[0], settings, make_stage(f"finetune-{budget}"))["steps_per_seed"]
        lines = [line for line in capsys.readouterr().err.split("\n") if "the minimum is an epoch" in line]
        return steps, "".join(lines)

    steps, line = said("10tok")
    assert "allows each fine-tuning 1 steps; " in line
    assert f"{len(run_settings.finetune.seeds)} x {steps} steps" in line
    assert said("12ktok")[1] == ""
