"""A task of two dozen rows, a table of candidates, and the selector over both, small enough for a test."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from endtask.config import Settings, resolve
from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import read_selection, read_statistics, write_selection
from endtask.io.stage_folder import StageFolder
from endtask.pipeline.stages.select import select
from endtask.records import Document, Example, Selected
from endtask.selectors.base import RunContext
from endtask.selectors.influence.runner import InfluenceRunner
from endtask.task import Task
from tests.toy_run import WORDS, sentence

ROWS, CANDIDATES = 24, 40
BYTES = 10_000
"""The size of the corpus of the candidates."""
OPTIONS: dict[str, Any] = {"size": "tiny", "epochs": 2, "share_of_budget": None, "uninformed": "warn"}


def make_task(rows: int = ROWS) -> Task:
    chance = random.Random(1)
    labels = [list(WORDS)[number % 3] for number in range(rows)]
    examples = [Example(f"train-{n}", f"{sentence(label, 5, chance)} {n}", label) for n, label in enumerate(labels)]
    dev = [Example(f"dev-{n}", f"{sentence(label, 4, chance)} dev {n}", label) for n, label in enumerate(labels[:9])]
    return Task.from_examples(
        "small", {"train": examples, "dev": dev, "test": [Example("test-0", "sky and moon", "space")]}
    )


def make_candidates(count: int = CANDIDATES, longest: int = 14) -> list[Selected]:
    chance = random.Random(2)
    candidates = []
    for index in range(count):
        text = sentence(list(WORDS)[index % 3], chance.randint(3, longest), chance)
        document, queries = Document(f"d{index}", text, "s"), (f"train-{chance.randrange(ROWS)}",)
        candidates.append(Selected(document, index, 1 + index % 7, 9.0 - index / 9, 1, queries, "retrieved"))
    return candidates


def small_settings(influence: dict[str, Any] | None = None, **select_values: Any) -> Settings:
    options = {**OPTIONS, **(influence or {})}
    return resolve(
        {
            "seed": options.pop("seed", 0),
            "model": {"architecture": options.pop("architecture", "lean")},
            "threads": 1,
            "device": "cpu",
            "tokenizer": {"vocab_size": 120},
            "pretrain": {"max_length": 16},
            "finetune": {"max_length": 16},
            "select": {"name": "influence", "budget": "10passages", **select_values, **options},
        }
    )


def write_table(folder: Path, candidates: list[Selected] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_selection(folder / RETRIEVED, make_candidates() if candidates is None else candidates)
    return folder


def make_run(
    folder: Path, settings: Settings, task: Task, output: Path, stage: StageFolder | None = None
) -> RunContext:
    """Return the context of the selector over the table in `folder`, which is written if it is missing."""
    if not (folder / RETRIEVED).exists():
        write_table(folder)
    return RunContext(
        settings.select,
        folder,
        corpus_bytes=BYTES,
        seed=settings.seed,
        examples=task.train,
        folder=output,
        device="cpu",
        task=task,
        run=settings,
        stage=stage,
    )


def make_runner(folder: Path, settings: Settings, *, task: Task | None = None) -> InfluenceRunner:
    """Return the runner over a table in `folder`."""
    run = make_run(folder, settings, task or make_task(), folder)
    return InfluenceRunner(run, read_statistics(run.table), settings.select.part.config)


def run_influence(
    folder: Path, settings: Settings, *, task: Task | None = None, stage: StageFolder | None = None
) -> tuple[dict[str, Any], list[Selected]]:
    """Run the stage over a table in `folder`; return counts and the selection."""
    output = folder / "out" if stage is None else stage.start()
    output.mkdir(parents=True, exist_ok=True)
    counts = select(make_run(folder, settings, task or make_task(), output, stage))
    return counts, list(read_selection(output / SELECTION))
