"""Collect what the results file of a comparison lacks: costs up to the best dev score, learned weights, selections.

    python -m studies.curves runs/tartan-weights FOLDER     # FOLDER/TASK.curves.json.gz for each task

FOLDER then travels with the results files of `endtask compare --results`; `studies.collect` reads both.
"""

from __future__ import annotations

import argparse
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
_POINTS = 60
"""The most points of a curve of learned weights."""


def write_curves(folder: Path, raw: Path) -> None:
    """Write the rows of each comparison below a study's folder, or in the folder itself, to a folder of results."""
    raw.mkdir(parents=True, exist_ok=True)
    for comparison in sorted(path.parent for path in (*folder.glob("*/compare.json"), *folder.glob("compare.json"))):
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
            **_weight_curve(metrics),
            **_selection(run),
            "gpu_bytes": memory,
        }


def _weight_curve(metrics: list[Tree]) -> Tree:
    """Return the learned weights on the way: some steps, and each objective's weight at them."""
    rows = [row for row in metrics if any(key.startswith(_WEIGHT) for key in row)]
    rows = rows[:: max(1, -(-len(rows) // _POINTS))]
    if not rows:
        return {}
    names = [key for key in rows[0] if key.startswith(_WEIGHT)]
    weights = {name.removeprefix(_WEIGHT): [round(row[name], 4) for row in rows] for name in names}
    return {"weight_curve": {"step": [row["step"] for row in rows], **weights}}


def _selection(run: Path) -> Tree:
    """Return the statistics of the run's selection, and the held-out scores of the models that scored for it."""
    counts = (read_manifest(run / "select") or {}).get("counts", {})
    quality, scored = counts.get("quality", {}), counts.get("influence", {})
    found: Tree = {key: counts[key] for key in ("passages", "bytes") if key in counts}
    if "kl" in quality:
        found["kl"] = quality["kl"]
    if "label_words" in quality:
        found["label_words"] = quality["label_words"]["share"]
    if "overlap" in quality:
        found["as_best_rank"] = quality["overlap"]["best_rank"]["share"]
    if "scoring_models" in scored:
        found["scoring_models"] = scored["scoring_models"]
    return {"selection": found} if found else {}


def _metrics(folder: Path) -> list[Tree]:
    file = folder / "metrics.jsonl"
    return list(read_metrics(file)) if file.exists() else []


def _scores(rows: list[Tree], score: str) -> list[tuple[int, float]]:
    return [(row["step"], row[score]) for row in rows if score in row]


def _best(scores: list[tuple[int, float]]) -> tuple[int, float]:
    """Return the first step with the highest score, and the score."""
    return max(scores, key=lambda pair: (pair[1], -pair[0]))


def main() -> None:
    """Write the curves of the runs in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder of a study or of a comparison")
    parser.add_argument("folder", type=Path, help="where the files go")
    args = parser.parse_args()
    write_curves(args.runs, args.folder)
    print(args.folder)


if __name__ == "__main__":
    main()
