"""A model of the shape of a small encoder (256 x 4, a vocabulary of 15,500), trained for a few steps on made-up text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import endtask
from benchmarks.generate_corpus import Lengths, texts

RUN = "mini"
HIDDEN, LAYERS, VOCABULARY = 256, 4, 15_500
_LABELS = ("alpha", "beta", "gamma", "delta")
_ROWS = {"train": 2_400, "dev": 60, "test": 60}
_WORDS = Lengths(mean=150, spread=0.3, least=60, most=300)
_REQUESTED = Lengths(mean=30, spread=0.5, least=3, most=90)


def make_run(folder: Path) -> Path:
    """Train the model into `folder/runs/mini` and return the folder of runs; a finished one is used again."""
    runs = folder / "runs"
    if not (runs / RUN / "model" / "config.json").exists():
        _write_task(folder / "task")
        endtask.run(_settings(folder / "task", runs / RUN))
    return runs


def request_texts(count: int) -> list[str]:
    """Return texts of 3 to 90 words, which clients send."""
    return [text.decode() for text in texts(np.random.default_rng(1), _REQUESTED, count)]


def vocabulary_of(runs: Path) -> int:
    """Return the size of the model's vocabulary."""
    config = json.loads((runs / RUN / "model" / "config.json").read_text(encoding="utf-8"))
    return int(config["vocab_size"])


def _write_task(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for split, count in _ROWS.items():
        rows = zip(texts(random, _WORDS, count), random.integers(0, len(_LABELS), count), strict=True)
        lines = [json.dumps({"text": text.decode(), "label": _LABELS[label]}) for text, label in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _settings(task: Path, output: Path) -> dict[str, object]:
    return {
        "output_dir": str(output),
        "budget": "4steps",
        "task": {"path": str(task)},
        "tokenizer": {"vocab_size": VOCABULARY},
        "model": {
            "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "intermediate_size": 4 * HIDDEN,
            "max_position_embeddings": 256,
        },
        "pretrain": {"max_length": 64, "batch_size": 16},
        "finetune": {"max_length": 32, "batch_size": 64, "epochs": 1, "seeds": [0]},
    }
