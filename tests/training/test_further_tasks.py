"""Auxiliary tasks on the shared encoder: heads, schedule, and predictions of separate networks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from endtask.config import Settings
from endtask.encoders.network import TASK, auxiliary_head
from endtask.encoders.weights import load_weights, save_weights
from endtask.evaluation.probabilities import class_probabilities
from endtask.io.run_layout import BEST_WEIGHTS
from endtask.io.stage_files import MANIFEST
from endtask.io.stage_folder import StageFolder
from endtask.records import Example
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts, packed_folder
from endtask.tokenization.packing import TrainingTexts
from endtask.training.finetune import finetune
from endtask.training.finetune_phase import batches_per_epoch, finetune_phase
from endtask.training.initial_network import network_for, network_of_auxiliary_task
from endtask.training.pretrain import WEIGHTS
from endtask.training.pretrain_phase import pretrain_objectives
from tests.tiny import make_texts, shake
from tests.toy_run import hashes

from .conftest import CPU, changed, packed_in, pretrained_in

KINDS = ("token_classification", "regression", "multilabel", "pair")
TASKS = {kind: {"path": "somewhere"} for kind in KINDS}
OBJECTIVES = {
    "task": {"kind": "task"},
    **{kind: {"kind": "joint" if kind == "pair" else "task", "task": kind} for kind in KINDS},
    "tapt": {"kind": "mlm", "texts": "task", "task": "token_classification"},
}


def _answered(kind: str, name: str, text: str, number: int) -> Example:
    words = tuple(text.split())
    if kind == "token_classification":
        return Example(name, text, tuple("B-x" if word < "m" else "O" for word in words), tokens=words)
    if kind == "regression":
        return Example(name, text, len(words) + number / 7)
    if kind == "multilabel":
        holds = {"even": number % 2 == 0, "long": len(words) > 3}
        return Example(name, text, tuple(label for label, true in holds.items() if true))
    return Example(name, text, "no" if number % 2 else "yes", text_pair=f"stone {number % 2}")


def _further(kind: str, train: int) -> Task:
    sizes = {"train": train, "dev": 9, "test": 7}
    made = {split: make_texts(count, seed=count, longest=5) for split, count in sizes.items()}
    rows = {
        split: [_answered(kind, f"{split}{n}", text, n) for n, text in enumerate(texts)]
        for split, texts in made.items()
    }
    return Task.from_examples(kind, rows, task_type=kind)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def all_tasks(task: Task) -> Task:
    """The end task with one of every other kind, each of another size."""
    return replace(task, auxiliary={kind: _further(kind, 14 + 9 * place) for place, kind in enumerate(KINDS)})


@pytest.fixture(scope="module")
def told(run_settings: Settings) -> Settings:
    tree = run_settings.model_dump(mode="json")
    tree["tasks"] = TASKS
    tree["pretrain"] = {**tree["pretrain"], "weighting": "equal", "objectives": OBJECTIVES}
    tree["finetune"] = {**tree["finetune"], "tasks": "all", "epochs": 2, "seeds": [0]}
    return Settings.model_validate(tree)


@pytest.fixture(scope="module")
def packed_all(all_tasks: Task, told: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_in(tmp_path_factory.mktemp("pack"), all_tasks, told)


def test_the_tokenizer_learns_from_the_train_texts_of_all(all_tasks: Task, packed_all: Path) -> None:
    tasks = (all_tasks, *all_tasks.auxiliary.values())
    rows = [example for one in tasks for example in one.train]
    texts = {text for example in rows for text in (example.text, example.text_pair) if text}
    assert set(TrainingTexts(all_tasks)) == texts
    for one in tasks:
        folder = packed_folder(packed_all, None if one is all_tasks else one.name)
        assert [len(PackedTexts(folder / split)) for split in ("task", *one.splits)] == [
            len(one.train),
            *map(len, one.splits.values()),
        ]


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("task_head", ["stock", "tlm"])
def test_a_network_of_its_own_says_the_same(
    all_tasks: Task, told: Settings, packed_all: Path, tmp_path: Path, architecture: str, task_head: str
) -> None:
    """The further head on the shared encoder, against a network that has but this task, as it is exported."""
    settings = changed(told, model={"architecture": architecture}, pretrain={"task_head": task_head})
    shared = shake(network_for(all_tasks, packed_all, settings))
    save_weights(tmp_path / "weights.safetensors", shared)
    for name, one in all_tasks.auxiliary.items():
        own = network_of_auxiliary_task(all_tasks, name, packed_all, settings, tmp_path / "weights.safetensors")
        assert own.task_type.name == one.type
        texts = PackedTexts(packed_folder(packed_all, name) / "test")
        expected = class_probabilities(own, texts, batch_size=4, context=CPU)
        found = class_probabilities(shared, texts, batch_size=4, context=CPU, head=auxiliary_head(name))
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


def test_losses_are_those_of_a_task_alone(all_tasks: Task, told: Settings, packed_all: Path, tmp_path: Path) -> None:
    """Each objective of pre-training, against the end task's objective in a run that has nothing but this task."""
    shared = shake(network_for(all_tasks, packed_all, told)).eval()
    save_weights(tmp_path / "weights.safetensors", shared)
    found = pretrain_objectives(all_tasks, packed_all, shared, told)
    for name, asked in told.pretrain.objectives.items():
        if asked.task is None:
            continue
        own = network_of_auxiliary_task(
            all_tasks, asked.task, packed_all, told, tmp_path / "weights.safetensors"
        ).eval()
        settings = _alone(told, {name: {**OBJECTIVES[name], "task": None}})
        folder = _packed_alone(packed_all, asked.task, tmp_path / name)
        one = pretrain_objectives(all_tasks.auxiliary[asked.task], folder, own, settings)[name]
        for step in range(3):
            value = found[name].loss(shared, found[name].batch(step)).total
            assert torch.equal(value, one.loss(own, one.batch(step)).total), (name, step)
            assert found[name].flops(shared, found[name].batch(step)) == one.flops(own, one.batch(step)), (name, step)


def _alone(settings: Settings, objectives: dict[str, Any]) -> Settings:
    tree = settings.model_dump(mode="json")
    tree["tasks"], tree["pretrain"]["objectives"], tree["finetune"]["tasks"] = {}, objectives, "main"
    return Settings.model_validate(tree)


def _packed_alone(packed: Path, name: str, folder: Path) -> Path:
    """A auxiliary task's packed texts as they would be those of an end task."""
    folder.mkdir()
    for place in (*packed_folder(packed, name).iterdir(), packed / "tokenizer"):
        (folder / place.name).symlink_to(place)
    return folder


def test_an_epoch_reads_every_text_of_every_task_once(all_tasks: Task, told: Settings, packed_all: Path) -> None:
    network = network_for(all_tasks, packed_all, told)
    phase = finetune_phase(network, all_tasks, packed_all, told, CPU, seed=0)
    tasks: dict[str, Any] = dict(phase.objectives)
    assert list(tasks) == ["task", *KINDS]
    epoch = batches_per_epoch(tasks)
    assert phase.steps == 2 * epoch
    for start in (0, epoch):
        read: Counter[tuple[str, int]] = Counter()
        for step in range(start, start + epoch):
            (scheduled,) = phase.weighting.schedule(step)
            read.update(
                (scheduled.objective, int(row)) for row in tasks[scheduled.objective].stream.positions(scheduled.step)
            )
        sizes = {"task": len(all_tasks.train), **{name: len(one.train) for name, one in all_tasks.auxiliary.items()}}
        assert read == {(name, row): 1 for name, size in sizes.items() for row in range(size)}


@pytest.mark.parametrize(("tokens", "is_least"), [pytest.param(400, False, marks=pytest.mark.long), (1, True)])
def test_a_budget_holds_however_large_the_other_tasks(
    all_tasks: Task, told: Settings, packed_all: Path, tmp_path: Path, tokens: int, is_least: bool
) -> None:
    """The least that is trained is the end task's epoch, not one of all tasks; dev is scored at its end."""
    start, _ = pretrained_in(tmp_path, all_tasks, packed_all, told)
    settings = changed(told, budget=f"{4 * tokens}tok", finetune={"budget_share": 0.25, "epochs": 50})
    stage = StageFolder(tmp_path / "run", "finetune", "", {}, {})
    counts = finetune(all_tasks, packed_all, start, settings, stage)
    steps, epoch = stage.plan["steps"], stage.plan["steps_per_epoch"]
    phase = finetune_phase(network_for(all_tasks, packed_all, told), all_tasks, packed_all, told, CPU, seed=0)
    least = phase.objectives["task"].stream.plan.batches_per_epoch  # type: ignore[attr-defined]
    assert least <= steps < epoch == phase.steps // 2
    assert (steps == least) == is_least
    assert is_least or 0.7 * tokens <= counts["tokens"] <= 1.3 * tokens
    assert counts["seeds"][0]["best_step"] == steps


def test_heads_are_new_and_differ(all_tasks: Task, told: Settings, packed_all: Path) -> None:
    network = network_for(all_tasks, packed_all, told)
    names = [TASK, *(auxiliary_head(name) for name in all_tasks.auxiliary)]

    def heads() -> list[torch.Tensor]:
        return [next(network.heads[name].parameters()).detach().clone() for name in names]

    first = heads()
    finetune_phase(network, all_tasks, packed_all, told, CPU, seed=0)
    second = heads()
    finetune_phase(network, all_tasks, packed_all, told, CPU, seed=1)
    for one, two, three in zip(first, second, heads(), strict=True):
        assert not torch.equal(one, two)
        assert not torch.equal(two, three)
    assert len({weight.sum().item() for weight in second}) == len(names)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.long
@pytest.mark.slow
def test_all_learn_together_and_a_killed_stage_goes_on(
    all_tasks: Task, told: Settings, packed_all: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _ = pretrained_in(tmp_path, all_tasks, packed_all, told)
    settings = changed(told, finetune={"epochs": 4, "learning_rate": 2e-2, "checkpoint_steps": 25})

    def files(stage: StageFolder) -> dict[str, str]:
        return {name: value for name, value in hashes(stage.partial).items() if name != MANIFEST}

    unbroken = StageFolder(tmp_path / "unbroken", "finetune", "", {}, {})
    finetune(all_tasks, packed_all, start, settings, unbroken)
    killed, calls, keep = StageFolder(tmp_path / "killed", "finetune", "", {}, {}), [], StageFolder.save_time

    def dies(stage: StageFolder, *given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise Killed
        return keep(stage, *given, **options)

    monkeypatch.setattr(StageFolder, "save_time", dies)
    with pytest.raises(Killed):
        finetune(all_tasks, packed_all, start, settings, killed)
    finetune(all_tasks, packed_all, start, settings, killed)
    assert files(killed) == files(unbroken)

    network = network_for(all_tasks, packed_all, settings)
    load_weights(start / WEIGHTS, network)
    before = _train_losses(network, all_tasks, packed_all, settings)  # with the new heads that training starts from
    load_weights(unbroken.partial / "seed-0" / BEST_WEIGHTS, network)
    after = _train_losses(network, all_tasks, packed_all, changed(settings, finetune={"head": "pretrained"}))
    assert all(after[name] < before[name] for name in before), (before, after)


def _train_losses(network: Any, task: Task, packed: Path, settings: Settings) -> dict[str, float]:
    phase = finetune_phase(network, task, packed, settings, CPU, seed=0)
    network.eval()
    with torch.inference_mode():
        return {
            name: sum(float(one.loss(network, one.batch(step)).total) for step in range(3))
            for name, one in phase.objectives.items()
        }
