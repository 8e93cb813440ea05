"""A toy task, a toy corpus and settings of a run that takes a second or two."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

WORDS = {
    "food": ["soup", "bread", "salt", "oven", "cook", "taste"],
    "space": ["star", "moon", "orbit", "rocket", "planet", "sky"],
    "sport": ["ball", "goal", "team", "match", "player", "win"],
}
RESULTS = ("model/*", "pack/tokenizer/*", "evaluate/*", "pretrain/*", "finetune/seed-*/*")


def sentence(label: str, words: int, random: random.Random) -> str:
    return " ".join(random.choice(WORDS[label]) for _ in range(words))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_toy(folder: Path, *, pairs: bool = False) -> Path:
    """Write `task/` (60 train, 18 dev, 18 test rows of three classes) and `corpus.jsonl` (200 passages)."""
    chance = random.Random(0)
    for split, count in (("train", 60), ("dev", 18), ("test", 18)):
        labels = [list(WORDS)[number % 3] for number in range(count)]
        rows = [{"text": f"{sentence(label, 5, chance)} {split} {n}", "label": label} for n, label in enumerate(labels)]
        if pairs:
            rows = [{**row, "text_pair": sentence(row["label"], 4, chance)} for row in rows]
        write_rows(folder / "task" / f"{split}.jsonl", rows)
    labels = [list(WORDS)[number % 3] for number in range(200)]
    passages = [{"text": f"{sentence(label, 12, chance)} passage {n}."} for n, label in enumerate(labels)]
    write_rows(folder / "corpus.jsonl", passages)
    return folder


def toy_settings(data: Path, output: Path, **changes: Any) -> dict[str, Any]:
    """Return plain settings of a run over the toy data; `changes` replace top-level keys."""
    return {
        "output_dir": str(output),
        "budget": "6steps",
        "threads": 1,
        "device": "cpu",
        "task": {"path": str(data / "task")},
        "corpus": {"sources": [{"path": str(data / "corpus.jsonl")}]},
        "retrieve": {"top_k": 5},
        "select": {"budget": "50%"},
        "tokenizer": {"vocab_size": 200},
        "model": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 32,
        },
        "pretrain": {"max_length": 16, "batch_size": 8, "checkpoint_steps": 2},
        "finetune": {"max_length": 16, "batch_size": 16, "epochs": 2, "seeds": [0, 1], "checkpoint_steps": 3},
        **changes,
    }


def write_settings(path: Path, data: Path, output: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(toy_settings(data, output, **changes)), encoding="utf-8")
    return path


def hashes(folder: Path, *patterns: str) -> dict[str, str]:
    """Return hashes of the files below a folder, or of those that match a pattern, by name."""
    files = {file for pattern in patterns or ("**/*",) for file in folder.glob(pattern) if file.is_file()}
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def results(run: Path) -> dict[str, str]:
    """Return hashes of a run's weights, tokenizer, predictions, scores and curves, without manifests (they have times)."""
    return {name: value for name, value in hashes(run, *RESULTS).items() if not name.endswith("manifest.json")}
