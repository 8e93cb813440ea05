"""Collect the cost of each run of a comparison up to its best dev score, and its last learned weights."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from endtask.config import load_settings
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_files import read_manifest
from endtask.training.metrics_file import read_metrics
from studies.stored_results import CURVES

Tree = dict[str, Any]
_WEIGHT = "weight/"


def write_curves(folder: Path, raw: Path) -> None:
    """Write the rows of each comparison below a study's folder next to its stored results."""
    raw.mkdir(parents=True, exist_ok=True)
    for comparison in sorted(path.parent for path in folder.glob("*/compare.json")):
        rows = [
            {"cell": run.parent.name, "seed": int(run.name.removeprefix("seed-")), **row}
            for run in sorted((comparison / "variants").glob("*/seed-*"))
            for row in curves_of(run)
        ]
        (raw / f"{comparison.name}{CURVES}").write_bytes(gzip.compress(json.dumps(rows).encode(), mtime=0))


def curves_of(run: Path) -> Iterator[Tree]:
    """Yield a row for each fine-tuning; pre-training costs count up to the step from which fine-tuning starts."""
    settings = load_settings(run / SETTINGS_FILE)
    score = f"dev/{settings.evaluate.metric}"
    stages = {name: read_manifest(run / name) for name in ("pretrain", "finetune")}
    finetuned = stages["finetune"]
    if finetuned is None:
        return
    metrics = _metrics(run / "pretrain")
    weights = {key.removeprefix(_WEIGHT): row[key] for row in metrics for key in row if key.startswith(_WEIGHT)}
    best_pretraining: Tree = {}
    share = 1.0
    pretrained = stages["pretrain"] or {"seconds": 0.0, "counts": {}}
    if scores := _scores(metrics, score):
        step, best = _best(scores)
        best_pretraining = {"pretrain_step": step, "pretrain_dev": best}
        share = step / pretrained["counts"]["steps"] if settings.finetune.start_from == "best" else 1.0
    memory = max((stage or {}).get("gpu_bytes", 0) for stage in stages.values())
    seeds = sorted((run / "finetune").glob("seed-*"))
    for seed in seeds:
        scores = _scores(_metrics(seed), score)
        step, best = _best(scores)
        finetuned_share = step / max(1, *(step for step, _ in scores)) / len(seeds)
        costs = {
            "seconds_to_best": share * pretrained["seconds"] + finetuned_share * finetuned["seconds"],
            "flops_to_best": share * pretrained["counts"].get("flops", 0.0)
            + finetuned_share * finetuned["counts"]["flops"],
        }
        yield {
            "finetune_seed": int(seed.name.removeprefix("seed-")),
            "dev": best,
            "finetune_step": step,
            **best_pretraining,
            **{name: round(cost, 2) for name, cost in costs.items()},
            "weights": weights,
            "gpu_bytes": memory,
        }


def _metrics(folder: Path) -> list[Tree]:
    file = folder / "metrics.jsonl"
    return list(read_metrics(file)) if file.exists() else []


def _scores(rows: list[Tree], score: str) -> list[tuple[int, float]]:
    return [(row["step"], row[score]) for row in rows if score in row]


def _best(scores: list[tuple[int, float]]) -> tuple[int, float]:
    """Return the first step with the highest score, and the score."""
    return max(scores, key=lambda pair: (pair[1], -pair[0]))
