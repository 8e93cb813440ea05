"""Learned weights in pre-training: the held-out texts for every task type."""

from __future__ import annotations

import gc
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from endtask.config import BatchSize, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK
from endtask.errors import InputError
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.training import optimizer as optimizer_module
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.training.pretrain import pretrain
from endtask.training.pretrain_phase import pretrain_phase
from endtask.weighting import folds as weighting_folds
from endtask.weighting.folds import Folds, fold_steps
from endtask.weighting.meta import MetaConfig
from endtask.weighting.meta.gradient import HeldOutGradient, counted_weights
from endtask.weighting.meta.head import Classes
from endtask.weighting.meta.rule import Meta, TextHeldOut
from tests.tiny import LABELS, make_labels, make_network, make_packed, make_texts

from .conftest import CPU, MakeStage, changed, packed_in

OBJECTIVES = {
    "end": {"kind": "task"},
    "tapt": {"kind": "mlm", "texts": "task"},
    "tlm": {"kind": "mlm", "texts": "selection"},
}
PAPER = {"every": 1, "parameters": "all", "head": "adamw", "floor": 0.0}


@pytest.fixture(autouse=True)
def short_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of train is held out for three steps."""
    monkeypatch.setattr(weighting_folds, "FOLD_STEPS", 3)


def warning_of(task: Task, settings: Settings) -> str | None:
    """Return what the weighting warns of, if anything."""
    return next(settings.pretrain.weighting.part.warnings(task, settings), None)


def meta_settings(settings: Settings, **meta: Any) -> Settings:
    given = {"folds": 4, "fit_batch": 8, "gradient_batch": 6, "every": 2, **meta}
    return changed(settings, pretrain={"objectives": OBJECTIVES, "weighting": {"name": "meta", **given}})


def source(tmp_path: Path, folds: Folds | None, *, fixed: bool = False) -> TextHeldOut:
    network = make_network()
    network.fixed_shapes = fixed
    sizes = MetaConfig(fit_batch=8, gradient_batch=5)

    def answered(name: str, size: int) -> Classification:
        texts = make_packed(tmp_path / name)
        stream = TextStream(name, texts, network, batch_size=BatchSize.parse(str(size)), seed=0)
        return Classification(name, stream, make_labels())

    fit, held_out = answered("fit", 8), answered("held", 5)
    return TextHeldOut(fit, held_out, Classes(len(LABELS)), folds=folds, settings=sizes, seed=0)


@pytest.mark.parametrize("fixed", [False, True])
def test_with_folds_a_head_never_sees_the_texts_that_judge_it(tmp_path: Path, fixed: bool) -> None:
    folds = Folds(np.arange(24) % 3, steps=2)
    held_out = source(tmp_path, folds, fixed=fixed)
    texts = make_packed(tmp_path / "fit")
    context = {tuple(texts[number].tolist()): number for number in range(24)}
    shapes = set()
    for step in range(8):
        for batch, held in ((held_out.fit_batch(step), False), (held_out.gradient_batch(step), True)):
            ids = [batch.input_ids[start:end] for start, end in zip(batch.offsets, batch.offsets[1:], strict=False)]
            numbers = [context[tuple(one.tolist())] for one in ids[: batch.texts]]
            assert set(folds.held_out(step)[numbers]) == {held}
            assert held_out.targets(batch)[: batch.texts].tolist() == make_labels()[numbers].tolist()
            assert held_out.targets(batch)[batch.texts :].eq(-100).all()
            shapes.add((held, batch.input_ids.shape, batch.offsets.shape) if fixed else (held,))
    assert len(shapes) == 2


def test_a_batch_of_which_nothing_is_left_gives_way_to_a_later_one(tmp_path: Path) -> None:
    texts, allowed = make_packed(tmp_path), 5
    stream = TextStream(
        "one by one",
        texts,
        make_network(),
        batch_size=BatchSize.parse("1"),
        seed=0,
        left_out=lambda step: np.arange(len(texts)) != allowed,
    )
    assert {tuple(stream.positions(step).tolist()) for step in range(2 * len(texts))} == {(allowed,)}
    assert stream.batch(3).input_ids.tolist() == texts[allowed].tolist()


def test_batches_are_pure_functions_of_the_step(tmp_path: Path) -> None:
    first, again = source(tmp_path / "a", None), source(tmp_path / "b", None)
    for make in ("fit_batch", "gradient_batch"):
        same = [getattr(one, make)(7).input_ids for one in (first, again)]
        assert same[0].equal(same[1])
        assert not torch.equal(same[0], getattr(first, make)(8).input_ids)


def test_what_a_head_reads_is_what_the_own_head_reads(tmp_path: Path) -> None:
    held_out, network = source(tmp_path, None), make_network()
    batch = held_out.gradient_batch(0)
    outputs = network.heads[TASK](held_out.features(network, batch))
    assert outputs.allclose(held_out.task_outputs(network, batch))


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_gradients_are_compared_where_the_settings_say(tmp_path: Path, architecture: str) -> None:
    network = make_network(architecture)
    names = [name for name, _ in network.encoder.named_parameters()]
    compared = counted_weights(network.encoder, MetaConfig(parameters="all"))
    without_embeddings = counted_weights(network.encoder, MetaConfig())
    assert compared == set(names)
    assert without_embeddings == {name for name in names if "embeddings" not in name}
    held_out = HeldOutGradient(network, source(tmp_path, None), settings=MetaConfig(), context=CPU, seed=0)
    flat, counted = held_out(0), torch.zeros(sum(weight.numel() for weight in network.encoder.parameters()))
    for part in held_out.parts:
        counted[part] = 1
    sizes = {name: weight.numel() for name, weight in network.encoder.named_parameters()}
    assert counted.sum() == sum(sizes[name] for name in without_embeddings)
    assert flat[counted == 0].eq(0).all()
    assert flat[counted == 1].ne(0).float().mean() > 0.5


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU that has no bfloat16 of its own
@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_no_gradient_is_lost_in_bfloat16(tmp_path: Path, architecture: str) -> None:
    """Both readings are cast; what one has cast without a gradient must not serve the other."""
    network = make_network(architecture)
    found = [
        HeldOutGradient(network, source(tmp_path, None), settings=MetaConfig(), context=context, seed=0)(0).clone()
        for context in (CPU, DeviceContext(torch.device("cpu"), torch.bfloat16))
    ]
    assert torch.nn.functional.cosine_similarity(*found, dim=0) > 0.99
    assert found[1].ne(0).float().mean() > 0.95 * found[0].ne(0).float().mean()


def texts_read(phase: Phase, name: str, steps: int) -> list[set[int]]:
    """The texts that an objective reads at each step."""
    return [set(phase.objectives[name].stream.positions(step).tolist()) for step in range(steps)]  # type: ignore[attr-defined]


def test_the_end_task_leaves_out_what_is_held_out(task: Task, packed: Path, run_settings: Settings) -> None:
    phase = pretrain_phase(task, packed, meta_settings(run_settings))
    assert isinstance(phase.weighting, Meta)
    folds = phase.weighting._gradient._held_out._folds  # type: ignore[attr-defined]
    for name in ("end", "tapt"):  # with or without their labels, nobody reads the texts that judge
        for step, texts in enumerate(texts_read(phase, name, 12)):
            assert texts
            assert not folds.held_out(step)[sorted(texts)].any()


def test_weights_start_as_the_objectives_say(task: Task, packed: Path, run_settings: Settings) -> None:
    weighted = {**OBJECTIVES, "tapt": {**OBJECTIVES["tapt"], "weight": 2}, "tlm": {**OBJECTIVES["tlm"], "weight": 5}}
    given = {"every": 2, "gradient_batch": 6, "floor": 0.0}
    settings = changed(run_settings, pretrain={"objectives": weighted, "weighting": {"name": "meta", **given}})
    shown = pretrain_phase(task, packed, settings).weighting.values()
    assert {name: shown[f"weight/{name}"].item() for name in weighted} == pytest.approx(
        {"end": 1 / 8, "tapt": 2 / 8, "tlm": 5 / 8}
    )


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_weights_that_do_not_move_train_as_fixed_ones_do(
    task: Task, packed: Path, run_settings: Settings, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at held-out texts, gradients apart and unweighted heads must change nothing else; dev judges, as parts of
    train would be left out of batches."""
    monkeypatch.setattr(optimizer_module, "ADAM_EPSILON", 1e-14)
    counts = {"end": 1, "tapt": 20, "tlm": 399}
    weighted = {name: {**one, "weight": counts[name]} for name, one in OBJECTIVES.items()}
    meta = {"every": 2, "gradient_batch": 6, "split": "dev", "learning_rate": 1e-9}
    common = {
        "objectives": weighted,
        "max_grad_norm": None,
        "dropout": dropout,
        "learning_rate": 5e-3,
    }
    trained = []
    for rule in ({"name": "meta", **meta}, "equal"):
        settings = changed(run_settings, pretrain={**common, "weighting": rule})
        phase = replace(pretrain_phase(task, packed, settings), steps=12)
        losses = [record.losses["tlm/mlm"].item() for record in train(phase, build_optimizer(phase))]
        trained.append((losses, phase.network.state_dict()))
    assert trained[0][0] == pytest.approx(trained[1][0], rel=1e-3)
    assert trained[0][0][-1] < trained[0][0][0] - 0.05
    for name, value in trained[0][1].items():
        torch.testing.assert_close(value, trained[1][1][name], rtol=1e-2, atol=1e-3, msg=name)


def test_all_batches_of_a_step_leave_out_the_same_part(task: Task, packed: Path, run_settings: Settings) -> None:
    settings = changed(meta_settings(run_settings), pretrain={"gradient_accumulation_steps": 3})
    phase = pretrain_phase(task, packed, settings)
    folds = settings.pretrain.weighting.part.folds(task, settings.pretrain_seed)
    assert folds is not None
    batches = texts_read(phase, "end", 36)
    for step in range(12):
        for texts in batches[3 * step : 3 * step + 3]:
            assert texts
            assert not folds.held_out(step)[sorted(texts)].any()
    for part in range(4):
        held = np.flatnonzero(folds.numbers == part)
        while_in = [texts for number, texts in enumerate(batches) if folds.numbers[held[0]] != (number // 9) % 4]
        assert set(held) & set().union(*while_in), "it is read while another part is held out"


def test_dropout_is_off_in_both_readings(tmp_path: Path) -> None:
    network = make_network(dropout=0.5)
    network.train()
    for settings in (MetaConfig(), MetaConfig(head="task")):
        gradient = HeldOutGradient(network, source(tmp_path, None), settings=settings, context=CPU, seed=0)
        first, again = (gradient(3).clone() for _ in range(2))
        assert first.equal(again)
        assert first.ne(0).any()
    assert network.training, "it is on again for the objectives"


def test_the_thread_of_held_out_batches_ends_with_its_owner(tmp_path: Path) -> None:
    def threads() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name.startswith("held out")}

    before = threads()
    gradient = HeldOutGradient(make_network(), source(tmp_path, None), settings=MetaConfig(), context=CPU, seed=0)
    gradient(0)
    (own,) = threads() - before
    gc.disable()
    try:
        del gradient
        own.join(timeout=30)
    finally:
        gc.enable()
    assert not own.is_alive()


def test_with_dev_the_end_task_reads_all_of_train(task: Task, packed: Path, run_settings: Settings) -> None:
    phase = pretrain_phase(task, packed, meta_settings(run_settings, split="dev"))
    assert set().union(*texts_read(phase, "end", 4)) == set(range(32))
    batch = phase.weighting._gradient._held_out.gradient_batch(0)  # type: ignore[attr-defined]
    assert batch.texts == 6


@pytest.mark.parametrize("changes", [{}, PAPER, {"head": "task", "split": "dev"}])
def test_stage_1_learns_weights(task: Task, packed: Path, run_settings: Settings, changes: dict[str, Any]) -> None:
    phase = pretrain_phase(task, packed, meta_settings(run_settings, **changes))
    steps = train(Phase(**{**vars(phase), "steps": 6}), build_optimizer(phase))
    records = list(steps)
    weights = torch.stack([records[-1].losses[f"weight/{name}"] for name in OBJECTIVES])
    assert weights.sum().item() == pytest.approx(1.0)
    assert weights.unique().numel() > 1
    assert records[-1].losses.keys() >= {f"cosine/{name}" for name in OBJECTIVES}


def test_a_killed_stage_goes_on_to_the_same_weights(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, tmp_path: Path
) -> None:
    settings = changed(meta_settings(run_settings), budget="12steps")
    settings = changed(settings, pretrain={"checkpoint_steps": 4})
    whole = make_stage("whole")
    pretrain(task, packed, settings, whole)
    cut = make_stage("cut")
    calls: list[int] = []

    def kill() -> None:
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt

    cut.save_time = kill  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        pretrain(task, packed, settings, cut)
    pretrain(task, packed, settings, make_stage("cut"))
    weights = [(tmp_path / "run" / f"{name}.partial" / "weights.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]
    rows = (tmp_path / "run" / "cut.partial" / "metrics.jsonl").read_text()
    assert "weight/tlm" in rows
    assert "cosine/end" in rows


def rows(split: str, kind: str) -> list[Example]:
    found = []
    for number, text in enumerate(make_texts(16, seed=len(split))):
        words = tuple(text.split())
        tags = tuple("ab"[len(word) % 2] for word in words)
        labels: dict[str, Any] = {
            "regression": float(number % 5),
            "token_classification": tags,
            "multilabel": ("a", "b", "c")[: number % 4],
        }
        found.append(
            Example(f"{split}{number}", text, labels[kind], tokens=words if kind == "token_classification" else None)
        )
    return found


@pytest.mark.parametrize("kind", ["regression", "token_classification", "multilabel"])
def test_other_kinds_of_tasks_learn_weights_too(run_settings: Settings, tmp_path: Path, kind: str) -> None:
    task = Task.from_examples(kind, {split: rows(split, kind) for split in ("train", "dev")}, task_type=kind)
    packed = packed_in(tmp_path, task, run_settings)
    phase = pretrain_phase(task, packed, meta_settings(run_settings))
    *_, last = train(Phase(**{**vars(phase), "steps": 3}), build_optimizer(phase))
    assert last.losses["cosine/end"].isfinite()
    assert last.losses["cosine/end"] != 0


def test_every_part_has_its_turn_in_a_short_stage(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = changed(meta_settings(run_settings), budget="12steps")
    meta = settings.pretrain.weighting.options
    assert fold_steps(meta.folds, meta.every, 12) == 2  # 3 is not a multiple of the steps between weight updates
    assert fold_steps(meta.folds, meta.every, 1000) == weighting_folds.FOLD_STEPS
    asked: list[int] = []
    held_out = Folds.held_out

    def noted(folds: Folds, step: int) -> Any:
        asked.append(folds.steps)
        return held_out(folds, step)

    stage = make_stage("pretrain")
    stage.start()
    stage.set_plan(steps=12)
    monkeypatch.setattr(Folds, "held_out", noted)
    pretrain(task, packed, settings, stage)
    assert set(asked) == {2}, "all who read the texts and the looks alike"


def test_small_parts_are_warned_of_and_counted_as_they_are(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = changed(meta_settings(run_settings, gradient_batch=20), budget="2steps")
    counts = pretrain(task, packed, settings, make_stage("pretrain"))
    said = capsys.readouterr().err
    assert said.count("have 8 rows, fewer than pretrain.weighting.gradient_batch") == 1
    mean = float(PackedTexts(packed / "task").lengths.mean())
    assert counts["objectives"]["learned weights"]["tokens"] == round((8 + 8) * mean)


@pytest.mark.parametrize(("rows", "told"), [(6, True), (64, False)])
def test_a_dev_smaller_than_the_gradient_batch_is_warned_of(
    task: Task, run_settings: Settings, rows: int, told: bool
) -> None:
    dev = [Example(f"dev-{number}", f"text {number}", LABELS[0]) for number in range(rows)]
    few = replace(task, splits={**task.splits, "dev": dev})
    settings = meta_settings(run_settings, split="dev", gradient_batch=64)
    warning = warning_of(few, settings)
    assert (warning is not None) == told
    assert warning is None or "has 6 rows, fewer than pretrain.weighting.gradient_batch (64)" in warning
    assert warning_of(few, changed(run_settings)) is None, "no weights are learned"


def test_a_small_dev_is_told_while_training(
    task: Task, packed: Path, run_settings: Settings, make_stage: MakeStage, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = len(task.splits["dev"])
    settings = changed(meta_settings(run_settings, split="dev", gradient_batch=rows + 1), budget="2steps")
    pretrain(task, packed, settings, make_stage("pretrain"))
    assert capsys.readouterr().err.count(f"has {rows} rows, fewer than pretrain.weighting.gradient_batch") == 1


def test_a_selection_that_turns_out_empty_leaves_nothing_to_weigh(
    task: Task, packed: Path, run_settings: Settings, tmp_path: Path
) -> None:
    settings = changed(run_settings, pretrain={"weighting": "meta"})
    assert set(pretrain_phase(task, packed, settings).objectives) == {"corpus", "task"}
    shutil.copytree(packed, tmp_path / "packed", ignore=shutil.ignore_patterns("selection"))
    with pytest.raises(InputError, match=r"key 'pretrain.weighting': .* without corpus text task is alone"):
        pretrain_phase(task, tmp_path / "packed", settings)
