"""Draws of few labelled texts from a task, as evenly over the classes as their number allows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from endtask.records import Example
from endtask.seeds import generator
from endtask.task import Task

TASKS = ("trec_qc", "sst2", "pubmed_sections", "agnews")
LABELS = (8, 16, 64, 200)
"""Labelled texts in all, not for each class."""
NAMES = {
    "trec_qc": {
        "ABBR": "abbreviation",
        "DESC": "description",
        "ENTY": "entity",
        "HUM": "human",
        "LOC": "location",
        "NUM": "number",
    },
    "sst2": {"0": "negative", "1": "positive"},
}
"""What a class is called in words, where its label does not say it."""
_UNUSED_DEV_ROWS = 8


def drawn_rows(task: Task, labels: int, draw: int) -> list[Example]:
    """Return the rows of a draw, one of each class in turn; a draw of fewer labels is part of one of more.

    Rows whose text is scored, or was drawn before, are left out.
    """
    random = generator(draw, "few-labels")
    taken = {example.text for split in ("dev", "test") for example in task.splits.get(split, ())}
    by_class: dict[str, list[Example]] = {label: [] for label in task.labels}
    for number in random.permutation(len(task.train)):
        example = task.train[number]
        if example.text not in taken:
            taken.add(example.text)
            by_class[str(example.label)].append(example)
    order = [by_class[str(label)] for label in random.permutation(task.labels)]
    turns = (rows[turn] for turn in range(max(map(len, order))) for rows in order if turn < len(rows))
    return [row for row, _ in zip(turns, range(labels), strict=False)]


def with_names(rows: Sequence[Example], task: Task, name: str) -> list[Example]:
    """Return the rows and a row for each class, whose text is the name of the class in words."""
    words = NAMES.get(name, {})
    named = [replace(rows[0], text=words.get(label, label).lower(), label=label) for label in task.labels]
    return [*rows, *named]


def scored_rows(task: Task, split: str, most: int) -> list[Example]:
    """Return at most so many rows of a split, the same ones for every draw."""
    examples = task.splits[split]
    chosen = generator(0, "few-labels", "scored").permutation(len(examples))[:most]
    return [examples[number] for number in np.sort(chosen)]


def write_task(folder: Path, train: Sequence[Example], scored: Sequence[Example], task: Task) -> Path:
    """Write a task of few labels; its dev split, which a run wants, decides nothing where the last weights are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = [example for example in task.dev if example not in scored][:_UNUSED_DEV_ROWS]
    for split, examples in (("train", train), ("dev", dev), ("test", scored)):
        lines = (json.dumps({"text": example.text, "label": example.label}) + "\n" for example in examples)
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder
