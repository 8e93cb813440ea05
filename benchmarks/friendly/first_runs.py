"""First runs: `endtask run --task FILE --corpus FILES --budget 90s` and an 8-bit export, on tasks nobody developed on."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endtask.io.atomic import write_text
from endtask.io.tables import read_rows

Row = dict[str, Any]
BUDGET_SECONDS = 90
MOST_TRAIN, MOST_SCORED = 900, 600
"""Rows of train, and of dev and test: what a first file of labels has."""


@dataclass(frozen=True)
class FirstRun:
    """A task of the sample data and the corpus files that a user of it would have."""

    task: str
    corpus: tuple[str, ...]


FIRST_RUNS = (
    FirstRun("trec_qc", ("corpus/wikipedia_2018_sample.jsonl.zst",)),
    FirstRun("csabstruct", ("corpus_science/conference_abstracts.jsonl.zst", "corpus/scitldr_abstracts.jsonl.zst")),
    FirstRun("hyperpartisan", ("corpus/abc_news.jsonl.zst", "corpus/fakenewsnet_articles.jsonl.zst")),
)


def first_run_row(first: FirstRun, data: Path, folder: Path) -> Row:
    """Run a task with the default settings, export its model with 8-bit weights, and return what was measured.

    A finished run and a finished export are not repeated; a stopped run resumes.
    """
    run = folder / first.task
    task = _write_task(first.task, data, folder / "tasks" / first.task)
    corpus = [option for name in first.corpus for option in ("--corpus", str(data / name))]
    if not (run / "model" / "manifest.json").exists():
        _endtask("run", "--task", str(task), *corpus, "--budget", f"{BUDGET_SECONDS}s", "--output", str(run))
    exported = run / "exports" / "int8" / "export.json"
    if not exported.exists():
        _endtask("export", str(run), "--to", "int8")
    return {"measure": "first_run", "task": first.task, **_measured(run), **_export(exported)}


def _write_task(name: str, data: Path, folder: Path) -> Path:
    """Write the text and the label of a seeded draw of rows, once."""
    for split, most in (("train", MOST_TRAIN), ("dev", MOST_SCORED), ("test", MOST_SCORED)):
        rows = [row for _, row in read_rows(data / "tasks" / name / f"{split}.jsonl.zst")]
        drawn = random.Random(0).sample(rows, min(most, len(rows)))
        lines = [json.dumps({"text": row["text"], "label": row["label"]}) + "\n" for row in drawn]
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{split}.jsonl", "".join(lines))
    return folder


def _endtask(*arguments: str) -> None:
    """Run a command of endtask, which prints its progress."""
    subprocess.run([sys.executable, "-m", "endtask", *arguments], check=True)


def _measured(run: Path) -> Row:
    stages = {path.parent.name: _read(path) for path in run.glob("*/manifest.json")}
    training = sum(stages[name]["seconds"] for name in ("pretrain", "finetune"))
    results = _read(run / "evaluate" / "results.json")
    tfidf = results["baselines"]["tfidf"]
    return {
        "train_rows": stages["read"]["counts"].get("train"),
        "test_rows": results["rows"],
        "metric": results["summary"]["metric"],
        "score": results["summary"]["mean"],
        "tfidf_score": tfidf["score"],
        "difference": tfidf["difference"],
        "interval": tfidf["interval"],
        "p_value": tfidf["p_value"],
        "training_seconds": training,
        "budget_error_percent": 100 * (training - BUDGET_SECONDS) / BUDGET_SECONDS,
        "run_seconds": sum(stage["seconds"] for stage in stages.values()),
    }


def _export(path: Path) -> Row:
    facts = _read(path)
    facts = facts.get("facts", facts)
    median = {name: latency["p50_ms"] for name, latency in facts["latency"].items()}
    return {
        "torch_ms": median["torch"],
        "int8_ms": median["int8"],
        "int8_speedup": median["torch"] / median["int8"],
        "int8_score_loss": facts["score_loss"],
    }


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
