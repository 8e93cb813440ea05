"""The stages of a run: the settings each reads, and the call that does its work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from endtask.corpus import Corpus
from endtask.files.atomic import write_json, write_text
from endtask.files.machine import usable_cores
from endtask.files.run_layout import BEST_WEIGHTS, SCRATCH, SELECTION
from endtask.files.stage_folder import StageFolder, read_manifest
from endtask.progress import say
from endtask.records import Example
from endtask.settings import Settings
from endtask.task import Task, audit

Counts = dict[str, Any]

READ_BY: dict[str, tuple[str, ...]] = {
    "read": ("task", "seed"),
    "retrieve": ("corpus", "retrieve"),
    "select": ("select", "seed"),
    "pack": (
        "tokenizer",
        "model.path",
        "seed",
        "train.max_length",
        "train.internal_max_length",
        "train.truncate_passages",
        "finetune.max_length",
        "finetune.window_stride",
    ),
    "pretrain": (
        "stage1",
        "model",
        "train",
        "seed",
        "budget",
        "finetune.budget_share",
        "device",
        "threads",
        "precision",
        "compile",
        "max_skipped_steps",
    ),
    "finetune": ("finetune", "evaluate.metric", "stage2"),
    "evaluate": ("evaluate.metric",),
    "model": (),
}
"""The settings each stage reads; those of the stages before it count through their fingerprints."""

READ_FROM_OUTSIDE: dict[str, tuple[str, ...]] = {
    "read": ("task",),
    "retrieve": ("corpus", "unlabelled"),
    "select": ("selection",),
    "pack": ("tokenizer",),
    "pretrain": ("checkpoint",),
}
"""Data from outside the run that a stage reads."""


class RunData(Protocol):
    """What every stage may read; `asked` are the settings as they were given, for people to read."""

    @property
    def task(self) -> Task: ...

    @property
    def corpus(self) -> Corpus | None: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def asked(self) -> Settings: ...


def _read(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    folder = stage.start()
    findings = audit(data.task)
    write_json(folder / "audit.json", findings.to_dict())
    for split, examples in data.task.splits.items():
        write_text(folder / f"{split}.jsonl", "".join(f"{_as_json(example)}\n" for example in examples))
    for problem in findings.problems:
        if problem.level != "note":
            say(f"{problem.level}: {problem.message}")
    return {split: len(examples) for split, examples in data.task.splits.items()}


def _retrieve(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.retrieve.retrieve import Place, retrieve

    settings = data.settings
    workers = settings.threads or usable_cores()
    place = Place(stage.start(), stage.final.parent / SCRATCH, workers, settings.keep_scratch)
    return retrieve(data.task, data.corpus, settings.retrieve, place, settings.task.columns)


def _select(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.select.choose import select

    manifest = read_manifest(made["retrieve"])
    assert manifest is not None
    return select(
        made["retrieve"],
        data.settings.select,
        stage.start(),
        corpus=data.corpus,
        corpus_bytes=manifest["counts"]["corpus"]["bytes"],
        labels=data.task.labels,
        seed=data.settings.seed,
        guarded=_guard(data),
        examples=data.task.train,
        device=data.settings.device,
    )


def _guard(data: RunData) -> Callable[[str], bool] | None:
    """Tells which texts of an imported selection hold a dev or test text; what was retrieved has passed the guard."""
    if data.settings.select.selector != "imported" or not data.settings.retrieve.guard:
        return None
    from endtask.retrieve.guard import Guard
    from endtask.retrieve.retrieve import guarded_texts

    return Guard.of(guarded_texts(data.task)).confirm


def _pack(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.text.pack import pack

    return pack(data.task, made["select"] / SELECTION, data.settings, stage.start())


def _pretrain(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.train.memory_trouble import explained_memory_trouble
    from endtask.train.pretrain import pretrain

    with explained_memory_trouble():
        return pretrain(data.task, made["pack"], data.settings, stage)


def _finetune(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.train.finetune import finetune
    from endtask.train.memory_trouble import explained_memory_trouble

    with explained_memory_trouble():
        return finetune(data.task, made["pack"], made["pretrain"], data.settings, stage)


def _evaluate(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.evaluate.evaluate import evaluate
    from endtask.train.device import choose_place, move
    from endtask.train.memory_trouble import explained_memory_trouble
    from endtask.train.start import network_for

    weights = {seed: made["finetune"] / f"seed-{seed}" / BEST_WEIGHTS for seed in data.settings.model_seeds}
    place = choose_place(data.settings)
    network = move(network_for(data.task, made["pack"], data.settings), data.settings, place)
    with explained_memory_trouble():
        return evaluate(data.task, made["pack"], weights, network, data.settings, stage.start(), place)


def _model(data: RunData, stage: StageFolder, made: dict[str, Path]) -> Counts:
    from endtask.export.model_folder import save_model
    from endtask.train.start import network_for

    network = network_for(data.task, made["pack"], data.settings)
    return save_model(network, made["pack"], made["finetune"], made["evaluate"], data.asked, stage.start())


WORK: dict[str, Callable[[RunData, StageFolder, dict[str, Path]], Counts]] = {
    "read": _read,
    "retrieve": _retrieve,
    "select": _select,
    "pack": _pack,
    "pretrain": _pretrain,
    "finetune": _finetune,
    "evaluate": _evaluate,
    "model": _model,
}


def _as_json(example: Example) -> str:
    row = {"id": example.id, "text": example.text, "text_pair": example.text_pair, "label": example.label}
    return json.dumps({key: value for key, value in row.items() if value is not None}, ensure_ascii=False)
