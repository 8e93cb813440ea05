"""Toy tasks of the types beyond one class per text, with the words of the toy corpus."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.toy_run import WORDS, sentence, write_rows

SPLITS = (("train", 48), ("dev", 16), ("test", 16))
_SCORES = {"food": 0.5, "space": 2.5, "sport": 4.0}


def tagged_row(number: int, chance: random.Random) -> dict[str, Any]:
    """Return a text about food with two tagged words about space."""
    before, after = sentence("food", chance.randint(1, 3), chance), sentence("food", 2, chance)
    tokens = [*before.split(), *sentence("space", 2, chance).split(), *after.split(), str(number)]
    start = len(before.split())
    return {"tokens": tokens, "tags": ["B-sky" if n == start else "I-sky" if n == start + 1 else "O"
                                       for n in range(len(tokens))]}  # fmt: skip


def scored_row(number: int, chance: random.Random) -> dict[str, Any]:
    """Return a text with a number that depends on its topic."""
    label = list(WORDS)[number % 3]
    return {"text": f"{sentence(label, 5, chance)} {number}", "label": _SCORES[label] + number % 5 / 10}


def labelled_row(number: int, chance: random.Random) -> dict[str, Any]:
    """Return a text with no, one or two topics as labels."""
    labels = [label for bit, label in enumerate(WORDS) if number >> bit & 1][:2]
    words = [sentence(label, 3, chance) for label in labels]
    return {"text": " ".join([*words, "text", str(number)]), "labels": labels}


ROWS = {"token_classification": tagged_row, "regression": scored_row, "multilabel": labelled_row}


def write_toy_of_type(folder: Path, task_type: str) -> Path:
    """Write `task/` of a task type and `corpus.jsonl`."""
    chance = random.Random(0)
    for index, (split, count) in enumerate(SPLITS):
        rows = [ROWS[task_type](100 * index + number, chance) for number in range(count)]
        write_rows(folder / "task" / f"{split}.jsonl", rows)
    labels = [list(WORDS)[number % 3] for number in range(60)]
    passages = [{"text": f"{sentence(label, 12, chance)} {n}."} for n, label in enumerate(labels)]
    write_rows(folder / "corpus.jsonl", passages)
    return folder
