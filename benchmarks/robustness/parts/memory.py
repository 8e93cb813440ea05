"""Peak memory of a 5 GB corpus and of a task with a million rows, through check, retrieve, select and pack.

Text is generated as it is written, and deleted with the run. A peak is the memory of the command and its processes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.generate_corpus import Lengths, generate, texts
from benchmarks.retrieval.monitor import Usage, monitor
from benchmarks.robustness.record import Row

HELP = "peak memory of a 5 GB corpus and of a million rows through check, retrieve, select and pack (5 to 10 minutes)"
_LABELS = ("yes", "no", "perhaps")
_ROW_LENGTHS = Lengths(mean=25, spread=0.4, least=5, most=80)
_BLOCK = 10_000
STEPS = {"check": ("check",), "run": ("run", "--until", "pack")}


@dataclass(frozen=True)
class Case:
    """A size of task and corpus; `number` is the key of the summary."""

    number: str
    rows: int
    corpus_bytes: int


CASES = {
    "5 GB corpus": Case("peak_gb_5gb_run", rows=2_000, corpus_bytes=5_000_000_000),
    "million rows": Case("peak_gb_million_rows", rows=1_000_000, corpus_bytes=20_000_000),
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the sizes, so that a small trial is possible."""
    parser.add_argument("--case", choices=CASES, action="append", help="one of the cases [all]")
    parser.add_argument("--scale", type=float, default=1.0, help="share of rows and bytes; 1 is what counts [1]")
    parser.add_argument("--scratch", type=Path, help="folder for text and runs, deleted after [the temporary folder]")


def measure(arguments: Namespace, rows: list[Row]) -> Iterator[Row]:
    """Yield a row per case and command; cases that are measured already are left out."""
    done = {row["case"] for row in rows if row["scale"] == arguments.scale}
    for name in arguments.case or CASES:
        if name not in done:
            with tempfile.TemporaryDirectory(prefix="endtask-memory-", dir=arguments.scratch) as folder:
                yield _measured(name, arguments.scale, arguments.seed, Path(folder))


def summarize(rows: list[Row]) -> Row:
    """Return the peak of each case that ran in full size and without an error."""
    numbers = {case.number: _peak([row for row in rows if row["case"] == name]) for name, case in CASES.items()}
    measured = {name: peak for name, peak in numbers.items() if peak is not None}
    return {**measured, "memory_cases": len(measured)}


def _peak(rows: list[Row]) -> float | None:
    whole = [row for row in rows if row["scale"] == 1 and not any(row["codes"].values())]
    return max(whole[-1]["peak_gb"].values()) if whole else None


def _measured(name: str, scale: float, seed: int, folder: Path) -> Row:
    case = CASES[name]
    task, corpus = folder / "task.jsonl", folder / "corpus"
    _write_task(task, round(case.rows * scale), seed)
    files = generate(corpus, text_bytes=round(case.corpus_bytes * scale), seed=seed)
    words = ["--task", str(task), "--corpus", str(corpus / "generated-*.jsonl.zst"), "--quiet"]
    usages: dict[str, Usage] = {}
    for step, (verb, *options) in STEPS.items():
        output = ["--output", str(folder / "run")] if verb == "run" else []
        usages[step] = monitor([sys.executable, "-m", "endtask", verb, *words, *output, *options], folder / "run")
    return {
        "case": name,
        "scale": scale,
        "rows": round(case.rows * scale),
        "text_gb": case.corpus_bytes * scale / 1e9,
        "stored_gb": round(sum(file.stat().st_size for file in files) / 1e9, 3),
        "peak_gb": {step: round(usage.peak_bytes / 1e9, 3) for step, usage in usages.items()},
        "seconds": {step: round(usage.seconds, 1) for step, usage in usages.items()},
        "run_gb": round(usages["run"].peak_disk_bytes / 1e9, 3),
        "codes": {step: usage.code for step, usage in usages.items()},
    }


def _write_task(path: Path, rows: int, seed: int) -> None:
    """Write labelled rows, a block at a time."""
    random = np.random.default_rng([seed, 2])
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, rows, _BLOCK):
            for text in texts(random, _ROW_LENGTHS, min(_BLOCK, rows - start)):
                file.write(json.dumps({"text": text.decode(), "label": str(random.choice(_LABELS))}) + "\n")
