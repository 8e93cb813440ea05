"""What each run of a comparison took to its best dev score, and where its weights went: figures from large folders.

python -m benchmarks.curves runs/tapt --out citation_intent-scratch-tapt.curves.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from endtask.config import load_settings
from endtask.io.atomic import write_json
from endtask.io.run_layout import SETTINGS_FILE
from endtask.io.stage_folder import read_manifest
from endtask.training.metrics_file import read_metrics

Tree = dict[str, Any]
_WEIGHT = "weight/"
_COSTS = ("seconds", "flops")


def curves_of(run: Path) -> Iterator[Tree]:
    """A row for each fine-tuning: the best dev score on the way, what it took to get there, and the last weights.

    `gpu_bytes` is the most memory that either stage held on a GPU.

    Pre-training counts in full where fine-tuning goes on from its last step, and up to its best step where from that.
    """
    settings = load_settings(run / SETTINGS_FILE)
    score = f"dev/{settings.evaluate.metric}"
    before, costs, weights = _pretraining(run / "pretrain", score, from_best=settings.finetune.start_from == "best")
    stage, seeds = run / "finetune", sorted((run / "finetune").glob("seed-*"))
    manifest = read_manifest(stage)
    if manifest is None:
        return
    whole = {"seconds": manifest["seconds"] / len(seeds), "flops": manifest["counts"]["flops"] / len(seeds)}
    both = [manifest, read_manifest(run / "pretrain") or {}]
    memory = max(one.get("gpu_bytes", 0) for one in both)
    for seed in seeds:
        scores = _scores(_rows(seed), score)
        step, best = _best(scores)
        share = step / max(1, *(step for step, _ in scores))
        to_best = {f"{cost}_to_best": round(costs[cost] + share * whole[cost], 2) for cost in _COSTS}
        found = {"finetune_seed": int(seed.name.removeprefix("seed-")), "dev": best, "finetune_step": step}
        yield {**found, **before, **to_best, "weights": weights, "gpu_bytes": memory}


def curves(folder: Path) -> list[Tree]:
    """The figures of all runs of a comparison, by cell and seeds."""
    runs = sorted((folder / "variants").glob("*/seed-*"))
    return [
        {"cell": run.parent.name, "seed": int(run.name.removeprefix("seed-")), **row}
        for run in runs
        for row in curves_of(run)
    ]


def times(rows: Sequence[Tree], cells: Sequence[Tree]) -> list[str]:
    """Lines for a page: what each cell took to its best dev score, and the learned weights at the end."""
    lines = []
    for cell in cells:
        found = [row for row in rows if row["cell"] == cell["cell"]]
        if found:
            flops, seconds = (fmean(one[f"{cost}_to_best"] for one in found) for cost in ("flops", "seconds"))
            words = f"best on dev after {flops:.2g} FLOPs, {seconds:.0f} s"
            weights = {name for one in found for name in one["weights"]}
            means = {name: fmean(one["weights"].get(name, 0.0) for one in found) for name in sorted(weights)}
            shares = ", ".join(f"{name} {_share(value)}" for name, value in means.items())
            lines.append(f"- {cell['title']}: {words}{f'; last weights: {shares}' if shares else ''}")
    return lines


def _share(value: float) -> str:
    """A weight with two figures, whether it is large or small.

    >>> _share(0.947), _share(0.0024)
    ('0.95', '0.0024')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _pretraining(stage: Path, score: str, *, from_best: bool) -> tuple[Tree, dict[str, float], Tree]:
    """Where dev was best, where it was scored; what of the stage's cost counts; the last weights of objectives."""
    manifest = read_manifest(stage) or {"seconds": 0.0, "counts": {}}
    counts = manifest["counts"]
    costs = {"seconds": float(manifest["seconds"]), "flops": float(counts.get("flops", 0.0))}
    rows = _rows(stage)
    weights = {
        key.removeprefix(_WEIGHT): value for row in rows for key, value in row.items() if key.startswith(_WEIGHT)
    }
    scores = _scores(rows, score)
    if not scores:
        return {}, costs, weights
    step, best = _best(scores)
    share = step / counts["steps"] if from_best else 1.0
    found = {"pretrain_step": step, "pretrain_dev": best}
    return found, {name: share * cost for name, cost in costs.items()}, weights


def _rows(folder: Path) -> list[Tree]:
    file = folder / "metrics.jsonl"
    return list(read_metrics(file)) if file.exists() else []


def _scores(rows: list[Tree], score: str) -> list[tuple[int, float]]:
    return [(row["step"], row[score]) for row in rows if score in row]


def _best(scores: list[tuple[int, float]]) -> tuple[int, float]:
    """The first of the highest."""
    return max(scores, key=lambda one: (one[1], -one[0]))


def main() -> None:
    """Write the figures of the comparison that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = curves(given.folder)
    write_json(given.out, found)
    print(json.dumps({"rows": len(found)}))


if __name__ == "__main__":
    main()
