"""A toy task, corpus and settings of a run that takes seconds, and the digests of what such a run must end in."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from random import Random
from typing import Any

from tests.toy_run import hashes, toy_settings

_WORDS = {
    "café": ["soup", "bread", "salt", "oven", "crème", "taste"],
    "espace": ["star", "moon", "orbit", "rocket", "planète", "sky"],
    "sport": ["ball", "goal", "team", "match", "player", "win"],
}
_RESULTS = ("model/*", "pack/tokenizer/*", "evaluate/*.json*", "pretrain/weights*", "finetune/seed-*/*")
_WITH_TIMES = ("manifest.json", "metrics.jsonl")
_VERSIONS = re.compile(rb"^python .*$", re.MULTILINE)
"""In the model card: another user may have another Python."""


def write_toy(folder: Path) -> Path:
    """Write `tâche/` (60 train, 18 dev, 18 test rows), `corpus.jsonl` and `settings.json`; return the settings' path."""
    random = Random(0)
    labels = list(_WORDS)
    for split, count in (("train", 60), ("dev", 18), ("test", 18)):
        rows = [
            {"text": f"{_words(labels[n % 3], 5, random)} {split} {n}", "label": labels[n % 3]} for n in range(count)
        ]
        _write_rows(folder / "tâche" / f"{split}.jsonl", rows)
    _write_rows(
        folder / "corpus.jsonl", [{"text": f"{_words(labels[n % 3], 12, random)} passage {n}."} for n in range(200)]
    )
    path = folder / "settings.json"
    path.write_text(json.dumps(_settings(folder), ensure_ascii=False), encoding="utf-8")
    return path


def _words(label: str, count: int, random: Random) -> str:
    return " ".join(random.choices(_WORDS[label], k=count))


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _settings(folder: Path) -> dict[str, Any]:
    settings = toy_settings(
        folder,
        folder / "run",
        budget="8steps",
        task={"path": str(folder / "tâche")},
        pretrain={"max_length": 16, "batch_size": 8, "checkpoint_steps": 2},
        finetune={"max_length": 16, "batch_size": 16, "epochs": 2, "seeds": [0, 1], "checkpoint_steps": 3},
    )
    return {key: value for key, value in settings.items() if key != "output_dir"}  # each run has its own


def digests(run: Path) -> dict[str, str]:
    """Return digests of a run's weights, tokenizer, predictions and scores; files that hold times are left out."""
    found = {name: digest for name, digest in hashes(run, *_RESULTS).items() if Path(name).name not in _WITH_TIMES}
    card = run / "model" / "README.md"
    if card.exists():
        found["model/README.md"] = hashlib.sha256(_VERSIONS.sub(b"", card.read_bytes())).hexdigest()
    return found
