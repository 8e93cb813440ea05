"""Count the attention heads of a study's runs and of pretrained encoders, for benchmarks/results/attention.json.

    endtask compare studies/attention.yaml --devices 0,0,0 --output runs/attention
    python -m studies.attention runs/attention               # then `python -m studies.claims` and `make docs`

The runs are compared with one encoder: endtask-mini where the package has it, else all-MiniLM-L6-v2, or that of
`--against PATH`. `--also PATH` counts more. A run needs its encoder before fine-tuning; `analysis.json` is written into
its folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_file import RESULTS, write_results
from endtask.analysis.analyze import analyze
from endtask.analysis.models import PRETRAINED
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError
from endtask.experiments.variants import VARIANTS
from endtask.io.installed_package import package_model
from endtask.reporting.run_folder import RunFolder

Tree = dict[str, Any]
MINI = "package:endtask-mini"
_TOKENS_PER_WEIGHT = 20
"""Fewer decide nothing: about as many train an encoder of a size well (Hoffmann et al., 2022)."""
_COUNTS = ("width", "layers", "heads", "positional", "vertical", "other", "same_class")


def runs_in(folder: Path) -> list[Path]:
    """Return the folders of the runs of a study, below `variants/NAME/seed-N`."""
    found = sorted(path.parent for path in folder.glob(f"**/{VARIANTS}/*/seed-*/pretrain"))
    if not found:
        raise InputError(
            "no pre-trained runs of a study there", path=folder, hint="endtask compare studies/attention.yaml"
        )
    return found


def attention_rows(folder: Path, checkpoints: Sequence[str]) -> Iterator[Tree]:
    """Yield a row for each model of each run, and one for each checkpoint and task; the first is the reference."""
    seen: set[tuple[str, str]] = set()
    for run in runs_in(folder):
        stored, analysis = RunFolder(run), analyze(run, checkpoints)
        common = {
            "task": stored.task_name,
            "texts": len(analysis["texts"]),
            "by_chance": analysis["same_class_by_chance"],
        }
        for model in analysis["models"]:
            name, counts = model["name"], {key: model[key] for key in _COUNTS}
            if name not in checkpoints:
                trained = {key: stored.counts("pretrain")[key] for key in ("tokens", "parameters")}
                where = {"cell": run.parent.name, "seed": int(run.name.removeprefix("seed-")), "state": name}
                yield {"kind": "run", **common, **where, **counts, **trained}
            elif (stored.task_name, name) not in seen:
                seen.add((stored.task_name, name))
                yield {"kind": "checkpoint", **common, "cell": name, "is_reference": name == checkpoints[0], **counts}


def summary_of(rows: Sequence[Tree], against: str) -> Tree:
    """Return what the runs are compared with, their tokens per weight, and why they decide nothing, if so."""
    runs = [row for row in rows if row["kind"] == "run" and row["state"] == PRETRAINED]
    least = min(runs, key=lambda row: row["tokens"] / row["parameters"])
    tokens_per_weight = least["tokens"] / least["parameters"]
    reason = f"the runs read {least['tokens'] / 1e6:.1f} million tokens, {tokens_per_weight:.2g} a weight; "
    return {
        "against": against,
        "runs": len(runs),
        "tokens_per_weight": round(tokens_per_weight, 3),
        "undecided_because": ""
        if tokens_per_weight >= _TOKENS_PER_WEIGHT
        else reason + "to be run as `studies/attention.yaml` is",
    }


def main() -> None:
    """Write benchmarks/results/attention.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the study's folder, such as runs/attention")
    parser.add_argument("--against", help="the encoder that the runs are compared with")
    parser.add_argument("--also", action="append", default=[], help="another encoder; may be repeated")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of attention.json")
    given = parser.parse_args()
    against = given.against or (MINI if package_model(MINI) else SMALL_PRETRAINED)
    checkpoints = list(
        dict.fromkeys([against, *given.also, *([SMALL_PRETRAINED] if package_model(SMALL_PRETRAINED) else [])])
    )
    try:
        rows = list(attention_rows(given.folder, checkpoints))
        command = "endtask compare studies/attention.yaml && python -m studies.attention FOLDER"
        print(write_results("attention", command, rows, summary_of(rows, against), given.results))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
