"""A packed task that a tiny network can learn, and training phases for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from endtask.config import BatchSize, PretrainSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.io.selection_table import write_selection
from endtask.io.stage_folder import StageFolder
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.objectives.task_losses import Classification, JointTask
from endtask.records import Document, Example, Selected
from endtask.task import Task
from endtask.tokenization.packing import pack
from endtask.training.phase import Phase
from endtask.training.pretrain import pretrain
from endtask.weighting.interleave import Interleave
from tests.tiny import make_labels, make_masking, make_network, make_packed, make_texts

MakePhase = Callable[..., Phase]
MakeStage = Callable[[str], StageFolder]
CPU = DeviceContext(torch.device("cpu"))
_PHASE_FIELDS = {field.name for field in fields(Phase)}


@pytest.fixture
def make_phase(tmp_path: Path) -> MakePhase:
    """Make a joint phase with fresh weights; keywords replace its fields or settings, or choose the network."""
    texts = make_packed(tmp_path / "texts")

    def make(architecture: str = "lean", *, dropout: float = 0.1, seed: int = 0, **changes: Any) -> Phase:
        network = make_network(architecture, dropout=dropout)
        common: dict[str, Any] = {"batch_size": BatchSize.parse("8"), "seed": seed, "masking": make_masking()}
        external = MaskedLM("corpus", TextStream("corpus", texts, network, **common))
        task = Classification("task", TextStream("task", texts, network, **common), make_labels())
        internal = JointTask(task, rho2=1.0)
        settings = {name: value for name, value in changes.items() if name not in _PHASE_FIELDS}
        phase = Phase(
            network=network,
            objectives={"corpus": external, "task": internal},
            weighting=Interleave("corpus", "task", rho1=1),
            steps=6,
            settings=PretrainSettings.model_validate({"weight_decay": 0.1, "warmup_steps": 0.3, **settings}),
            learning_rate=3e-3,
            seed=seed,
            context=CPU,
        )
        return replace(phase, **{name: value for name, value in changes.items() if name in _PHASE_FIELDS})

    return make


def changed(settings: Settings, **sections: Any) -> Settings:
    """The settings with some keys of some sections, or whole keys of the root, replaced."""
    tree = settings.model_dump(mode="json")
    for name, values in sections.items():
        tree[name] = {**tree[name], **values} if isinstance(values, dict) else values
    return Settings.model_validate(tree)


def _rows(split: str, count: int, seed: int) -> list[Example]:
    """The first word tells the class."""
    texts = make_texts(count, seed=seed, longest=4)
    return [Example(f"{split}{n}", f"{('river', 'stone')[n % 2]} {texts[n]}", "ab"[n % 2]) for n in range(count)]


@pytest.fixture(scope="session")
def task() -> Task:
    """Two classes that a word tells apart."""
    splits = {"train": _rows("train", 32, 1), "dev": _rows("dev", 12, 2), "test": _rows("test", 12, 3)}
    return Task.from_examples("tiny", splits)


@pytest.fixture(scope="session")
def run_settings() -> Settings:
    """Settings of a run that takes a second."""
    return Settings.model_validate(
        {
            "budget": "40steps",
            "device": "cpu",
            "tokenizer": {"vocab_size": 100},
            "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
            "pretrain": {
                "batch_size": 8,
                "max_length": 16,
                "weighting": {"rho1": 1},
                "objectives": {"task": {"rho2": 1.0}},
                "checkpoint_steps": 7,
            },
            "finetune": {"batch_size": 8, "max_length": 16, "epochs": 3, "seeds": [0, 1], "learning_rate": 3e-3},
        }
    )


def packed_in(folder: Path, task: Task, settings: Settings) -> Path:
    """What the pack stage leaves of a task and forty passages."""
    documents = [Document(str(n), text, "corpus") for n, text in enumerate(make_texts(40, seed=4))]
    write_selection(
        folder / "selection.parquet", [Selected(document, 0, 1, 1.0, 1, ("train0",), "rule") for document in documents]
    )
    pack(task, folder / "selection.parquet", settings, folder)
    return folder


def pretrained_in(folder: Path, task: Task, packed: Path, settings: Settings) -> tuple[Path, dict[str, Any]]:
    """The folder of a finished pre-training, and what it counted."""
    stage = StageFolder(folder, "pretrain", "fingerprint", {}, {})
    counts = pretrain(task, packed, settings, stage)
    stage.finish(counts)
    return stage.final, counts


@pytest.fixture(scope="session")
def packed(task: Task, run_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack stage's folder."""
    return packed_in(tmp_path_factory.mktemp("pack"), task, run_settings)


@pytest.fixture(scope="session")
def pretrained(
    task: Task, packed: Path, run_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The folder of pre-training, which scored dev on its way, and what it counted; read only."""
    settings = changed(run_settings, pretrain={"eval_steps": 10})
    return pretrained_in(tmp_path_factory.mktemp("run"), task, packed, settings)


@pytest.fixture
def make_stage(tmp_path: Path) -> MakeStage:
    """Make the folder of a stage, or find again what was left there."""
    return lambda name: StageFolder(tmp_path / "run", name, "fingerprint", {}, {})
