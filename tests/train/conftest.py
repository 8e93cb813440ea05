"""A task that a tiny network can learn, packed, and phases to train on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from endtask.files.selection_table import write_selection
from endtask.files.stage_folder import StageFolder
from endtask.objectives.masked_lm import MaskedLM
from endtask.objectives.task import JointClassification
from endtask.records import Document, Example, Selected
from endtask.settings import Settings
from endtask.task import Task
from endtask.text.pack import pack
from endtask.train.loop import Phase
from endtask.weighting.interleave import Interleave
from tests.tiny import make_labels, make_masking, make_network, make_packed, make_texts

MakePhase = Callable[..., Phase]


@pytest.fixture
def make_phase(tmp_path: Path) -> MakePhase:
    """Make a joint phase with fresh weights; keywords replace its fields, or choose the network."""
    texts = make_packed(tmp_path / "texts")
    common: dict[str, Any] = {"batch_size": 8, "pad_id": 0}

    def make(architecture: str = "modernbert", *, dropout: float = 0.1, seed: int = 0, **changes: Any) -> Phase:
        external = MaskedLM("external", texts, make_masking(), seed=seed, **common)
        internal = JointClassification(
            texts, make_labels(), make_masking(), rho2=1.0, normalize=True, seed=seed, **common
        )
        phase = Phase(
            network=make_network(architecture, dropout=dropout),
            objectives={"external": external, "internal": internal},
            weighting=Interleave("external", "internal", rho1=1),
            steps=6,
            learning_rate=3e-3,
            weight_decay=0.1,
            warmup_fraction=0.3,
            max_grad_norm=1.0,
            seed=seed,
            device=torch.device("cpu"),
        )
        return replace(phase, **changes)

    return make


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
            "train": {"batch_size": 8, "max_length": 16, "rho1": 1, "rho2": 1.0, "checkpoint_steps": 7},
            "finetune": {"batch_size": 8, "max_length": 16, "epochs": 3, "seeds": [0, 1], "learning_rate": 3e-3},
        }
    )


@pytest.fixture(scope="session")
def packed(task: Task, run_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pack stage's folder."""
    folder = tmp_path_factory.mktemp("pack")
    documents = [Document(str(n), text, "corpus") for n, text in enumerate(make_texts(40, seed=4))]
    write_selection(
        folder / "selection.parquet", [Selected(document, 0, 1, 1.0, 1, ("train0",), "rule") for document in documents]
    )
    pack(task, folder / "selection.parquet", run_settings, folder)
    return folder


@pytest.fixture
def make_stage(tmp_path: Path) -> Callable[[str], StageFolder]:
    """Make the folder of a stage, or find again what was left there."""
    return lambda name: StageFolder(tmp_path / "run", name, "fingerprint", {}, {})
