"""Learned weights inside TLM's stage 1, against fixed ones: the question that both papers leave open.

    .venv/bin/python -m benchmarks.mix prepare chemprot sciie                                    # here, minutes each
    endtask compare --bundle runs/mix/chemprot-few.tar.zst --devices 0,0,0 --results chemprot-few.json    # on a GPU
    .venv/bin/python -m benchmarks.mix collect --results DIR                                  # DIR/chemprot-few.json

Masked LM on the selection, masked LM on the task's texts and the task: by turns that rho1 and rho2 fix, all three at
every step with equal weights, or with weights that are learned. All cells read the same number of tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.compared import Compared, markdown
from benchmarks.kept import PACKED, keep, known_rows
from benchmarks.recipe.cells import NAMES, SEEDS, SHORT, base_settings
from benchmarks.results_file import RESULTS, Results, write_results
from endtask.bundle import write_bundle
from endtask.compare import compare
from endtask.errors import InputError, did_you_mean
from endtask.report.format import metric_name
from endtask.settings.values import with_values

Tree = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
TASKS = ("chemprot", "sciie")
COMMON: Tree = {**SHORT, "budget": "25Mtok"}
"""The recipe with a fifth of its tokens: where little is read, the mix matters most."""
_THREE: Tree = {
    "task": {"kind": "task", "dropout": 0.1},
    "task_mlm": {"kind": "mlm", "texts": "task"},
    "external": {"kind": "mlm", "texts": "selection"},
}
_FEW: Tree = {name: {**one, "batch_size": "2048tok"} if name != "external" else one for name, one in _THREE.items()}
"""A ninth of what is read is the task's, between the shares of rho1 = 3 and 19; else it is half."""
_AS_FIXED = {"task": 1, "task_mlm": 20, "external": 399}
"""What the three losses count by rho1 = 19 and rho2 = 20."""
_FROM_FIXED: Tree = {name: {**one, "weight": _AS_FIXED[name]} for name, one in _FEW.items()}
META = "meta"
FIXED: dict[str, tuple[str, Tree]] = {"alone": ("masked LM on the selection alone", {})} | {
    f"rho1-{rho1}-rho2-{rho2}": (f"rho1 = {rho1}, rho2 = {rho2}", {"train.rho1": rho1, "train.rho2": rho2})
    for rho1, rho2 in ((99, 20), (19, 20), (3, 20), (3, 1))
}
CELLS: dict[str, tuple[str, Tree]] = {
    META: ("META, half of what is read the task's", {"train.weighting": "meta", "train.objectives": _THREE}),
    "equal": ("MT, half of what is read the task's", {"train.weighting": "equal", "train.objectives": _THREE}),
    "meta-few": ("META, a ninth the task's", {"train.weighting": "meta", "train.objectives": _FEW}),
    "equal-few": ("MT, a ninth the task's", {"train.weighting": "equal", "train.objectives": _FEW}),
    "equal-start": (
        "a ninth the task's, weights of rho1 = 19, rho2 = 20",
        {"train.weighting": "equal", "train.objectives": _FROM_FIXED},
    ),
    "meta-start": ("META from there on", {"train.weighting": "meta", "train.objectives": _FROM_FIXED}),
    **FIXED,
}
"""By name, the title they are shown under and in what they differ from the recipe."""
PARTS = {
    "half": (META, "equal", *FIXED),
    "few": ("meta-start", "equal-start", "alone", "rho1-3-rho2-20", "meta-few", "equal-few"),
}
"""What is trained together; the second has the fixed mixes that were best in the first, for its own paired tests."""


def prepare(task: str, part: str, data: Path, out: Path, arms: Sequence[str] = ()) -> None:
    """Do everything up to the tokens, for all cells of the part or for some, and write the bundle."""
    name = f"{task}-{part}"
    settings = with_values(base_settings(task, data), {**COMMON, "output_dir": str(out / name)}, task)
    if unknown := [arm for arm in arms if arm not in PARTS[part]]:
        raise InputError(f"{part} has no arm {unknown[0]!r}", hint=did_you_mean(unknown[0], PARTS[part]))
    cells = {cell: CELLS[cell][1] for cell in PARTS[part] if not arms or cell in arms}
    asked = {"cells": cells, "seeds": list(SEEDS), "finetune_seeds": [SEEDS[0]], "baselines": []}
    compare(settings, asked, until="pack")
    bundle = write_bundle(out / name, out / f"{name}.tar.zst")
    print(json.dumps({"file": str(bundle.file), "bytes": bundle.bytes}))


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Keep what came back, judge it and write `mix.json`; all are tested against the fixed mix with the best dev score.

    What that file says of cells of which no predictions were kept stays as it is.
    """
    if not any(folder.glob("*.json")):
        raise InputError("no results of a comparison there", path=folder, hint="such as chemprot-few.json")
    kept = keep(folder, "mix", results)
    rows: list[Tree] = []
    summary: Tree = {}
    titles = {name: title for name, (title, _) in CELLS.items()}
    for task in TASKS:
        known = known_rows("mix", results, task=task)
        files = [file for part in PARTS if (file := kept / f"{task}-{part}{PACKED}").exists()]
        if not files:
            rows += known
            continue
        compared = Compared.read(files)
        best = _best_fixed(compared, folder, task)
        common = {"task": task, "metric": compared.measure.name, "gpu": compared.gpu}
        rows += [{"kind": "run", **common, **run} for run in compared.raw()]
        judged = compared.table(titles, best)
        rows += [{"kind": "cell", **common, **row} for row in judged]
        rows += [row for row in known if row["cell"] not in compared.runs]
        learned = [row for row in judged if row["cell"].startswith(META)]
        summary[task] = {
            "best_fixed": best,
            **{row["cell"]: {key: row[key] for key in ("lead", "p")} for row in learned},
        }
    return write_results("mix", "python -m benchmarks.mix", rows, summary, results)


def _best_fixed(compared: Compared, folder: Path, task: str) -> str:
    found = [name for name in FIXED if name in compared.runs]
    if not found:
        raise InputError("no fixed mix to compare with", path=folder / f"{task}-half.json")
    return max(found, key=lambda name: fmean(compared.models(name, "dev")))


def mix_table(results: Results) -> str:
    """A table for each task, against the fixed mix that dev would have chosen."""
    parts: list[str] = []
    cells: list[Tree] = [row for row in results.rows if row["kind"] == "cell"]
    for task in TASKS:
        if found := sorted((row for row in cells if row["task"] == task), key=lambda row: [*CELLS].index(row["cell"])):
            figures: Any = results.summary[task]
            best = f"{CELLS[figures['best_fixed']][0]}, the fixed mix that is best on dev"
            table = markdown(found, against=best, metric=metric_name(found[0]["metric"]))
            parts += [f"**{NAMES[task]}**", "", table, ""]
    gpu = next((row["gpu"] for row in cells if row["gpu"]), "a CPU")
    how = "Mean ± spread over stages 1 of different seeds; † where Holm's p is below .05; seconds on a shared GPU."
    return "\n".join([*parts, f"{how} {gpu}, {results.date}; `{results.command}`.", ""])


def main() -> None:
    """Prepare bundles, or collect what came back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "collect"))
    parser.add_argument("tasks", nargs="*", help=f"to prepare: {', '.join(TASKS)}; all")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS), help="to prepare")
    parser.add_argument("--arms", nargs="*", default=[], help="some of the part's; all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mix", help="where everything goes")
    parser.add_argument("--results", type=Path, help="to collect: what came back from the GPU")
    given = parser.parse_args()
    try:
        if unknown := [task for task in given.tasks if task not in TASKS]:
            raise InputError(f"no task is named {unknown[0]!r}", hint=f"known: {', '.join(TASKS)}")
        if given.step == "prepare":
            for task in given.tasks or TASKS:
                for part in given.parts:
                    prepare(task, part, given.data, given.out, given.arms)
        elif given.results is None:
            raise InputError("name the folder of what came back", key="--results")
        else:
            print(collect(given.results))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
