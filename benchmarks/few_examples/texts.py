"""Made-up tasks of the paper's two shapes: short queries with tagged words, and pairs of a short form and a snippet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SPLITS = {"train": 400, "dev": 50, "test": 200}
_SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
_WORDS = 2000
_QUERY, _SNIPPET = 9, 40


def write_task(folder: Path, kind: str, *, seed: int = 0) -> Path:
    """Write train, dev and test rows of a kind, `tags` or `pair`; what is asked can be learned from the words."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(_SYLLABLES, size=random.integers(1, 4))) for _ in range(_WORDS)]
    shares = 1.0 / np.arange(1, _WORDS + 1)
    shares /= shares.sum()
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in SPLITS.items():
        rows = [_row(kind, words, shares, random) for _ in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return folder


def _row(kind: str, words: list[str], shares: np.ndarray[Any, Any], random: np.random.Generator) -> dict[str, Any]:
    length = _QUERY if kind == "tags" else _SNIPPET
    numbers = random.choice(_WORDS, size=length, p=shares)
    chosen = [words[number] for number in numbers]
    if kind == "tags":
        return {"tokens": chosen, "tags": ["start" if number % 3 == 0 else "none" for number in numbers]}
    first = int(random.integers(length - 4))
    short = "".join(word[0] for word in chosen[first : first + 4])
    is_short = bool(random.integers(2))
    return {"text": short if is_short else short[::-1] + "x", "text_pair": " ".join(chosen), "label": "ny"[is_short]}
