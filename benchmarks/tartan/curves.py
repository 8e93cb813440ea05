"""When each run of a comparison was best on dev, and where its weights went: small figures from large folders.

python -m benchmarks.tartan.curves runs/tapt --out citation_intent-scratch-tapt.curves.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from endtask.files.atomic import write_json
from endtask.files.run_layout import SETTINGS_FILE
from endtask.files.stage_folder import read_manifest
from endtask.settings import load_settings
from endtask.train.metrics_file import read_metrics

Tree = dict[str, Any]
_WEIGHT = "weight/"


def curve_of(run: Path) -> Tree | None:
    """Best step of stage 1 by dev, the seconds until then, and the last weights; None where dev was not scored."""
    manifest, metrics = read_manifest(run / "pretrain"), run / "pretrain" / "metrics.jsonl"
    if manifest is None or not metrics.exists():
        return None
    rows = list(read_metrics(metrics))
    score = f"dev/{load_settings(run / SETTINGS_FILE).evaluate.metric}"
    scored = [(row["step"], row[score]) for row in rows if score in row]
    if not scored:
        return None
    step, best = max(scored, key=lambda one: (one[1], -one[0]))
    steps, seconds = manifest["counts"]["steps"], manifest["seconds"]
    weights: Tree = {}
    for row in rows:
        weights |= {key.removeprefix(_WEIGHT): value for key, value in row.items() if key.startswith(_WEIGHT)}
    found = {"best_step": step, "steps": steps, "seconds": seconds, "dev": best}
    return {**found, "seconds_to_best": round(seconds * step / max(steps, 1), 2), "weights": weights}


def curves(folder: Path) -> list[Tree]:
    """The figures of all runs of a comparison, by cell and seed."""
    found = []
    for run in sorted((folder / "cells").glob("*/seed-*")):
        curve = curve_of(run)
        if curve is not None:
            found.append({"cell": run.parent.name, "seed": int(run.name.removeprefix("seed-")), **curve})
    return found


def main() -> None:
    """Write the figures of the comparison that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = curves(given.folder)
    write_json(given.out, found)
    print(json.dumps({"runs": len(found)}))


if __name__ == "__main__":
    main()
