"""Pre-training as a set of objectives: against loops written by hand, resumed, in sequence, and with wrong texts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from endtask.config import Settings
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.io.selection_table import write_selection
from endtask.io.stage_folder import StageFolder
from endtask.records import Document, Selected
from endtask.reporting.costs import stage_summary
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.packing import pack
from endtask.training import phase_runner as phase_run
from endtask.training.budget_plan import measure_cost
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.loop import build_optimizer, train
from endtask.training.metrics_file import read_metrics
from endtask.training.optimizer import ADAM_BETA1, ADAM_EPSILON
from endtask.training.pretrain import BEST_PRETRAINED, WEIGHTS, pretrain, total_state
from endtask.training.pretrain_phase import DropoutOverride, pretrain_phase, split_phase, weighting_context
from endtask.weighting.meta import rule as meta_build
from endtask.weighting.sequence import split_steps
from tests.tiny import make_texts

from .conftest import MakeStage, changed, pretrained_in

OBJECTIVES: dict[str, Any] = {
    "task": {"kind": "task", "batch_size": 6},
    "tapt": {"kind": "mlm", "texts": "task"},
    "dapt": {"kind": "mlm", "texts": "domain", "batch_size": 4},
}


def selected(texts: list[str]) -> list[Selected]:
    return [Selected(Document(str(n), text, "corpus"), n, 1, 1.0, 0, (), "rule") for n, text in enumerate(texts)]


@pytest.fixture(scope="module")
def packed(task: Task, run_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pack stage leaves of a task, forty passages of a selection and thirty of a domain."""
    folder = tmp_path_factory.mktemp("pack")
    write_selection(folder / "selection.parquet", selected(make_texts(40, seed=4)))
    write_selection(folder / "domain.parquet", selected(make_texts(30, seed=5)))
    pack(task, folder / "selection.parquet", run_settings, folder, domain=folder / "domain.parquet")
    return folder


def with_objectives(settings: Settings, weighting: Any, names: str = "task tapt dapt", **train: Any) -> Settings:
    objectives = {name: OBJECTIVES[name] for name in names.split()}
    return changed(settings, pretrain={"weighting": weighting, "objectives": objectives, **train})


def weights_of(folder: Path, name: str = WEIGHTS) -> dict[str, torch.Tensor]:
    return load_tensors(folder / name)[0]


def test_tlms_two_by_name_are_the_same_bits_as_by_default(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path
) -> None:
    named = {"corpus": {"kind": "mlm", "texts": "selection"}, "task": {"kind": "joint", "rho2": 1.0}}
    by_name = changed(run_settings, pretrain={"objectives": named}, budget="8steps")
    default = changed(run_settings, budget="8steps")
    found = [pretrained_in(tmp_path / name, task, packed, s)[0] for name, s in (("a", default), ("b", by_name))]
    assert (found[0] / WEIGHTS).read_bytes() == (found[1] / WEIGHTS).read_bytes()


def test_equal_weights_are_a_sum_of_losses(task: Task, packed: Path, run_settings: Settings) -> None:
    """Three objectives against plain autograd, clipping and torch's own AdamW."""
    settings = with_objectives(run_settings, "equal", lr_scheduler_type="constant", warmup_steps=0)
    phase = replace(pretrain_phase(task, packed, settings), steps=4)
    by_hand = pretrain_phase(task, packed, settings)
    network, options = by_hand.network, settings.pretrain
    parameters = list(network.parameters())
    groups = [
        {"params": [weight for weight in parameters if (weight.ndim >= 2) == matrices], "weight_decay": decay}
        for matrices, decay in ((True, options.weight_decay), (False, 0.0))
    ]
    betas = (ADAM_BETA1, options.adam_beta2)
    adamw = torch.optim.AdamW(groups, lr=options.learning_rate, betas=betas, eps=ADAM_EPSILON)
    network.train()
    for record in train(phase, build_optimizer(phase)):
        step = record.step - 1
        losses = [one.loss(network, one.batch(step)).total for one in by_hand.objectives.values()]
        adamw.zero_grad()
        (sum(losses, torch.zeros(())) / 3).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adamw.step()
        assert record.grad_norm.item() == pytest.approx(norm.item(), rel=1e-5)
    for name, value in phase.network.state_dict().items():
        torch.testing.assert_close(value, network.state_dict()[name], rtol=1e-5, atol=1e-6, msg=name)


def test_given_weights_count_in_proportion(task: Task, packed: Path, run_settings: Settings) -> None:
    objectives = {"task": {"kind": "task", "weight": 3}, "tapt": OBJECTIVES["tapt"]}
    phase = pretrain_phase(
        task, packed, changed(run_settings, pretrain={"weighting": "equal", "objectives": objectives})
    )
    assert {scheduled.objective: scheduled.weight for scheduled in phase.weighting.schedule(0)} == {
        "task": 0.75,
        "tapt": 0.25,
    }


def test_each_objective_has_its_own_texts_batches_and_masking(task: Task, packed: Path, run_settings: Settings) -> None:
    phase = pretrain_phase(task, packed, with_objectives(run_settings, "equal"))
    batches: dict[str, list[Any]] = {
        name: [objective.batch(step) for step in range(4)] for name, objective in phase.objectives.items()
    }
    largest = {name: max(batch.texts for batch in found) for name, found in batches.items()}
    assert largest == {"task": 6, "tapt": 8, "dapt": 4}
    masked = {name: sum(batch.masked for batch in found) for name, found in batches.items()}
    assert masked["task"] == 0
    assert masked["tapt"] > 0
    assert masked["dapt"] > 0
    assert batches["task"][0].labels is not None


def test_every_objective_is_counted_by_itself(task: Task, packed: Path, run_settings: Settings, tmp_path: Path) -> None:
    settings = changed(with_objectives(run_settings, "equal"), budget="5steps")
    _, counts = pretrained_in(tmp_path, task, packed, settings)
    assert {name: found["steps"] for name, found in counts["objectives"].items()} == dict.fromkeys(OBJECTIVES, 5)
    for name in ("tokens", "matmul_flops"):
        assert sum(found[name] for found in counts["objectives"].values()) == pytest.approx(counts[name])
    cost = measure_cost(pretrain_phase(task, packed, settings), settings.budget)
    assert cost.tokens == pytest.approx(counts["tokens"] / 5, rel=0.15)
    assert {use["part"]: use["split"] for use in counts["uses"]} == {
        "task": "train",
        "tapt": "train",
        "dapt": "-",
        "fine-tuning": "train",
        "best step": "dev",
    }


@pytest.mark.parametrize("split", ["folds", "dev"])
def test_the_looks_of_learned_weights_are_counted(
    split: str, task: Task, packed: Path, run_settings: Settings, tmp_path: Path
) -> None:
    meta = {"every": 2, "fit_batch": 6, "gradient_batch": 4, "split": split, "folds": 8}
    settings = changed(with_objectives(run_settings, {"name": "meta", **meta}), budget="5steps")
    folder, counts = pretrained_in(tmp_path, task, packed, settings)
    looks = counts["objectives"]["learned weights"]
    lengths = {name: float(PackedTexts(packed / name).lengths.mean()) for name in ("task", "dev")}
    held_out = 4 * lengths["dev" if split == "dev" else "task"]
    assert (looks["steps"], looks["tokens"]) == (3, round(3 * (6 * lengths["task"] + held_out)))
    assert 0 < looks["matmul_flops"] < counts["matmul_flops"]
    for name in ("tokens", "matmul_flops"):
        assert sum(found[name] for found in counts["objectives"].values()) == pytest.approx(counts[name])
    objectives = sum(counts["objectives"][name]["tokens"] for name in OBJECTIVES)
    trained = objectives + 3 * (2 * lengths["task"] + held_out)
    assert counts["flops"] == pytest.approx(6 * counts["parameters"] * trained)
    plan = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["plan"]["cost_per_step"]
    assert plan["tokens"] == pytest.approx(objectives / 5 + (6 * lengths["task"] + held_out) / 2, rel=0.15)


@pytest.mark.parametrize(("groups", "held_out"), [(2, 1 / 2), (3, 1 / 3), (10_000, 1 / 8)])
def test_a_look_reads_no_more_than_its_parts_hold(
    groups: int, held_out: float, task: Task, packed: Path, run_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of train stay together, so there may be fewer and larger parts than folds."""
    meta = {"fit_batch": 10_000, "gradient_batch": 10_000, "folds": 8}
    settings = with_objectives(run_settings, {"name": "meta", **meta})
    lengths = PackedTexts(packed / "task").lengths
    texts = int(held_out * len(lengths) + 1e-9)
    monkeypatch.setattr(meta_build, "groups_in", lambda examples: groups)
    phase = pretrain_phase(task, packed, settings)
    look = settings.pretrain.weighting.part.extra_cost(weighting_context(phase, task, packed, settings))
    assert look is not None
    assert look.tokens == pytest.approx(lengths.sum())
    assert look.trained_tokens == pytest.approx((texts + (len(lengths) - texts) / 3) * lengths.mean())


@pytest.mark.parametrize("weighting", ["equal", "alternate", "sequence", "meta"])
def test_a_killed_stage_goes_on_to_the_same_bits(
    weighting: str, task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "dapt tapt task" if weighting == "sequence" else "task tapt dapt"
    settings = with_objectives(run_settings, weighting, names, checkpoint_steps=2, eval_steps=4, dropout=0.1)
    settings = changed(settings, budget="13steps")
    whole, _ = pretrained_in(tmp_path / "whole", task, packed, settings)
    stage = _killed_after(11, task, packed, settings, tmp_path, monkeypatch)
    counts = pretrain(task, packed, settings, stage)
    assert (stage.partial / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert (stage.partial / BEST_PRETRAINED).read_bytes() == (whole / BEST_PRETRAINED).read_bytes()
    rows = {file.relative_to(whole): read_metrics(file) for file in whole.rglob("metrics.jsonl")}
    assert rows == {name: read_metrics(stage.partial / name) for name in rows}
    assert sum(counts["objectives"][name]["steps"] for name in OBJECTIVES) == (
        13 if weighting in ("alternate", "sequence") else 39
    )
    assert list(stage.partial.rglob(CHECKPOINT)) == []


class _Killed(Exception):
    pass


def _killed_after(
    steps: int, task: Task, packed: Path, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The folder of a stage that was left after some steps of it."""
    done, count = 0, phase_run._count

    def counting(memory: Any, record: Any) -> None:
        nonlocal done
        done += 1
        if done > steps:
            raise _Killed
        count(memory, record)

    with monkeypatch.context() as patch:
        patch.setattr(phase_run, "_count", counting)
        with pytest.raises(_Killed):
            pretrain(task, packed, settings, StageFolder(folder / "killed", "pretrain", "fingerprint", {}, {}))
    return StageFolder(folder / "killed", "pretrain", "fingerprint", {}, {})


def test_a_sequence_trains_one_after_the_other(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path
) -> None:
    objectives = {
        "dapt": {**OBJECTIVES["dapt"], "weight": 3, "learning_rate": 5e-3},
        "tapt": OBJECTIVES["tapt"],
    }
    options = {"weighting": "sequence", "objectives": objectives, "learning_rate": 1e-3, "warmup_steps": 0}
    settings = changed(run_settings, pretrain=options, budget="8steps")
    folder, counts = pretrained_in(tmp_path / "both", task, packed, settings)
    assert {name: found["steps"] for name, found in counts["objectives"].items()} == {"dapt": 6, "tapt": 2}
    assert (counts["steps"], counts["tokens"]) == (8, sum(f["tokens"] for f in counts["objectives"].values()))
    rates = {name: read_metrics(folder / name / "metrics.jsonl")[0]["learning_rate"] for name in objectives}
    assert rates == {"dapt": pytest.approx(5e-3), "tapt": pytest.approx(1e-3)}, "each has a schedule of its own"
    first = changed(
        run_settings,
        pretrain={
            **options,
            "objectives": {"dapt": {**OBJECTIVES["dapt"]}},
            "weighting": "equal",
            "learning_rate": 5e-3,
        },
        budget="6steps",
    )
    start, _ = pretrained_in(tmp_path / "first", task, packed, first)
    second = pretrain_phase(task, packed, settings)
    second.network.load_state_dict(weights_of(start))
    second = replace(
        second,
        objectives={"tapt": second.objectives["tapt"]},
        weighting=pretrain_phase(task, packed, with_objectives(run_settings, "equal", "tapt")).weighting,
        steps=2,
    )
    assert [record.step for record in train(second, build_optimizer(second))] == [1, 2]
    expected = weights_of(folder)
    assert all(value.equal(expected[name]) for name, value in second.network.state_dict().items())


def test_an_objective_of_a_sequence_may_have_its_own_warm_up(task: Task, packed: Path, run_settings: Settings) -> None:
    objectives = {"dapt": OBJECTIVES["dapt"], "tapt": {**OBJECTIVES["tapt"], "warmup_steps": 0}}
    train = {"weighting": "sequence", "objectives": objectives, "warmup_steps": 4, "learning_rate": 1e-3}
    settings = changed(run_settings, pretrain=train)
    dapt, tapt = split_phase(replace(pretrain_phase(task, packed, settings), steps=20), settings)
    assert [dapt.phase.rate_factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert [tapt.phase.rate_factor(step) for step in range(2)] == [1.0, 0.9]


def test_trouble_of_all_parts_is_added_up_and_the_end_of_one_is_not_that_of_all() -> None:
    counts = {"steps": 2, "tokens": 5, "padded_tokens": 5, "matmul_flops": 1.0}
    first = {**counts, "skipped_steps": 2, "rate_halvings": 1, "stop": True, "objectives": {"a": {}}}
    total = total_state([first, {**counts, "skipped_steps": 3, "objectives": {"b": {}}}])
    assert total == {
        "steps": 4,
        "tokens": 10,
        "padded_tokens": 10,
        "matmul_flops": 2.0,
        "skipped_steps": 5,
        "rate_halvings": 1,
        "objectives": {"a": {}, "b": {}},
    }
    assert "skipped_steps" not in total_state([{**counts, "objectives": {}}])


def test_a_stage_that_fails_after_its_last_step_need_not_train_again(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(with_objectives(run_settings, "equal", checkpoint_steps=6), budget="6steps")
    stage = StageFolder(tmp_path, "pretrain", "fingerprint", {}, {})
    with monkeypatch.context() as patch:
        patch.setattr("endtask.training.pretrain.training_flops", _kill)
        with pytest.raises(_Killed):
            pretrain(task, packed, settings, stage)
    monkeypatch.setattr(phase_run, "_count", _kill)
    again = StageFolder(tmp_path, "pretrain", "fingerprint", {}, {})
    assert pretrain(task, packed, settings, again)["steps"] == 6
    assert list(again.partial.rglob(CHECKPOINT)) == []


def _kill(*_: Any) -> None:
    raise _Killed


@pytest.mark.parametrize(
    ("steps", "weights", "expected"),
    [(10, [1, 1], [5, 5]), (10, [1, 2], [3, 7]), (3, [100, 1, 1], [3, 1, 1]), (1, [1, 1], [1, 1])],
)
def test_every_part_of_a_sequence_has_a_step(steps: int, weights: list[float], expected: list[int]) -> None:
    assert split_steps(steps, weights) == expected


def test_objectives_may_each_have_their_dropout(task: Task, packed: Path, run_settings: Settings) -> None:
    objectives = {"task": {**OBJECTIVES["task"], "dropout": 0.4}, "tapt": OBJECTIVES["tapt"]}
    settings = changed(run_settings, pretrain={"weighting": "equal", "objectives": objectives, "dropout": 0.2})
    phase = pretrain_phase(task, packed, settings)
    rates = {}
    for name, objective in phase.objectives.items():
        assert isinstance(objective, DropoutOverride)
        objective.loss(phase.network, objective.batch(0))
        rates[name] = {part.p for part in phase.network.modules() if isinstance(part, torch.nn.Dropout)}
    assert rates == {"task": {0.4}, "tapt": {0.2}}
    alike = pretrain_phase(task, packed, with_objectives(run_settings, "equal"))
    assert not any(isinstance(one, DropoutOverride) for one in alike.objectives.values())


def test_an_objective_without_texts_is_named(task: Task, packed: Path, run_settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(packed, tmp_path / "pack")
    shutil.rmtree(tmp_path / "pack" / "domain")
    with pytest.raises(InputError, match=r"train\.objectives\.dapt\.texts.*the domain is empty"):
        pretrain_phase(task, tmp_path / "pack", with_objectives(run_settings, "equal"))
    assert pretrain_phase(task, tmp_path / "pack", with_objectives(run_settings, "equal", "task tapt")).objectives


def test_dev_is_scored_by_an_objective_that_learns_the_task(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage
) -> None:
    settings = changed(with_objectives(run_settings, "equal", eval_steps=10, early_stopping_patience=1))
    counts = pretrain(task, packed, settings, make_stage("pretrain"))
    assert counts["dev"]["accuracy"] > 0
    assert counts["best_step"] % 10 == 0
    assert counts["best_step"] + 10 == counts["steps"] < counts["planned_steps"]  # one look that was no better
    assert f"no better dev score since step {counts['best_step']}" in stage_summary("pretrain", counts)
