"""Learned weights inside TLM's pre-training, against fixed ones: the question that both papers leave open.

    .venv/bin/python -m benchmarks.mix prepare chemprot sciie --parts bm25                       # here, minutes each
    python -m benchmarks.mix prepare chemprot sciie --parts iss                          # where a GPU scores candidates
    endtask compare --bundle runs/mix/chemprot-bm25.tar.zst --devices 0,0,0 --results chemprot-bm25.json  # on a GPU
    python -m benchmarks.curves runs/chemprot-bm25 --out chemprot-bm25.curves.json             # there, if wanted
    .venv/bin/python -m benchmarks.mix collect --results DIR                                 # DIR/chemprot-bm25.json

Masked LM on the selection, masked LM on the task's texts and the task: by turns that rho1 and rho2 fix, all three at
every step with equal weights or those that rho1 and rho2 stand for, held fixed, or with weights that are learned. All
cells read the same number of tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.arms import some_arms
from benchmarks.compared import Compared, dagger, markdown, pairs_table
from benchmarks.curves import times
from benchmarks.kept import curve_rows, keep, result_files
from benchmarks.recipe.cells import NAMES, SHORT, base_settings
from benchmarks.results_file import RESULTS, Results, write_results
from benchmarks.tartan.cells import DOMAINS
from endtask.bundle import write_bundle
from endtask.config.overrides import with_values
from endtask.errors import InputError
from endtask.experiments import compare
from endtask.reporting.format import metric_name

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
    f"rho1-{rho1}-rho2-{rho2}": (
        f"rho1 = {rho1}, rho2 = {rho2}",
        {"pretrain.weighting.rho1": rho1, "pretrain.objectives.task.rho2": rho2},
    )
    for rho1, rho2 in ((99, 20), (19, 20), (3, 20), (3, 1))
}
CELLS: dict[str, tuple[str, Tree]] = {
    META: ("META, half of what is read the task's", {"pretrain.weighting": "meta", "pretrain.objectives": _THREE}),
    "equal": ("MT, half of what is read the task's", {"pretrain.weighting": "equal", "pretrain.objectives": _THREE}),
    "equal-start": (
        "a ninth the task's, weights of rho1 = 19, rho2 = 20",
        {"pretrain.weighting": "equal", "pretrain.objectives": _FROM_FIXED},
    ),
    "meta-start": ("META from there on", {"pretrain.weighting": "meta", "pretrain.objectives": _FROM_FIXED}),
    **FIXED,
}
"""By name, the title they are shown under and in what they differ from the recipe."""
LEARNED = {META: "equal", "meta-start": "equal-start"}
"""Cells with learned weights, and the cells that hold theirs fixed where those start."""
_A_NINTH = ("meta-start", "equal-start", "alone", "rho1-19-rho2-20", "rho1-3-rho2-20")
PARTS = {"bm25": tuple(CELLS), "iss": _A_NINTH}
"""The cells by who selects, each part with fixed mixes for its own paired tests: BM25 has all, ISS some."""
SEEDS = tuple(range(10))
_ISS: Tree = {
    "select.selector": "influence",
    "select.budget": "20%retrieved",
    "device": "auto",
    "precision": "auto",
}
"""As in ISS a fifth of what was retrieved, from the domain's own sources; to be prepared where a GPU scores it."""
_PART_TITLES = {"bm25": "on what BM25 selects", "iss": "on a selection by influence (ISS)"}


def values_of(task: str, part: str, data: Path) -> Tree:
    """In what all cells of a part differ from the recipe."""
    if part != "iss":
        return COMMON
    sources = [{"path": str(data / "corpus" / f"{name}.jsonl.zst")} for name in DOMAINS[task]]
    return {**COMMON, **_ISS, "corpus.sources": sources}


def prepare(task: str, part: str, data: Path, out: Path, arms: Sequence[str] = (), own: str = "") -> None:
    """Do everything up to the tokens, for all cells of a part or, under a name of their `own`, for some; bundle it."""
    name = f"{task}-{part}-{own}" if own else f"{task}-{part}"
    values = {**values_of(task, part, data), "output_dir": str(out / name)}
    settings = with_values(base_settings(task, data), values, task)
    cells = some_arms({cell: CELLS[cell][1] for cell in PARTS[part]}, arms, part)
    asked = {"variants": cells, "seeds": list(SEEDS), "finetune_seeds": [SEEDS[0]], "baselines": []}
    compare(settings, asked, until="pack")
    bundle = write_bundle(out / name, out / f"{name}.tar.zst")
    print(json.dumps({"file": str(bundle.file), "bytes": bundle.bytes}))


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Keep what came back, judge it and write `mix.json`.

    Each part is judged by itself, against its own fixed mix with the best dev score.
    """
    if not any(folder.glob("*.json")):
        raise InputError("no results of a comparison there", path=folder, hint="such as chemprot-bm25.json")
    kept = keep(folder, "mix", results)
    rows: list[Tree] = []
    for task in TASKS:
        for part in PARTS:
            if found := result_files(kept, f"{task}-{part}"):
                rows += _judged(found, task, part)
    return write_results("mix", "python -m benchmarks.mix", rows, _summary(rows), results)


def _judged(files: Sequence[Path], task: str, part: str) -> list[Tree]:
    """Rows of a part: of its runs, of its cells, and of its curves where they came back too."""
    compared = Compared.read(files)
    best = _best_fixed(compared, files[0])
    common = {"task": task, "part": part, "metric": compared.measure.name, "gpu": compared.gpu}
    judged = compared.table({name: title for name, (title, _) in CELLS.items()}, best)
    return [
        *({"kind": "run", **common, **run} for run in compared.raw()),
        *({"kind": "cell", **common, "against": best, **row} for row in judged),
        *({"kind": "pair", **common, **row} for row in _learned(compared)),
        *({"kind": "curve", **common, **row} for row in curve_rows(files[0].parent, f"{task}-{part}", compared.done)),
    ]


def _learned(compared: Compared) -> Iterator[Tree]:
    """The other question: what does learning the weights change, all else the same?"""
    for one, other in LEARNED.items():
        if {one, other} <= set(compared.runs):
            yield {"cell": one, "over": other, **compared.over(one, other)}


def _best_fixed(compared: Compared, file: Path) -> str:
    found = [name for name in FIXED if name in compared.runs]
    if not found:
        raise InputError("no fixed mix to compare with", path=file)
    return max(found, key=lambda name: fmean(compared.models(name, "dev")))


def _summary(rows: list[Tree]) -> Tree:
    """By task and part: the best fixed mix, and how far each cell with learned weights lies above it."""
    found: Tree = {}
    for row in (row for row in rows if row["kind"] == "cell"):
        statistics = found.setdefault(row["task"], {}).setdefault(row["part"], {"best_fixed": row["against"]})
        if row["cell"].startswith(META):
            statistics[row["cell"]] = {key: row[key] for key in ("lead", "p")}
    return found


def mix_table(results: Results) -> str:
    """A table for each task and part, against the fixed mix that dev would have chosen."""
    parts: list[str] = []
    rows: list[Tree] = results.rows
    cells = [row for row in rows if row["kind"] == "cell"]
    for task, part in product(TASKS, PARTS):
        found = [row for row in cells if (row["task"], row["part"]) == (task, part)]
        if found:
            found.sort(key=lambda row: [*CELLS].index(row["cell"]))
            best = f"{CELLS[found[0]['against']][0]}, the fixed mix that is best on dev"
            table = markdown(found, against=best, metric=metric_name(found[0]["metric"]))
            curves = [row for row in rows if (row["kind"], row["task"], row["part"]) == ("curve", task, part)]
            parts += [f"**{NAMES[task]}, {_PART_TITLES[part]}**", "", table, "", *times(curves, found), ""]
    if pairs := [row | {"title": _in_words(row)} for row in rows if row["kind"] == "pair"]:
        parts += [
            "**Learned weights against the same weights held fixed**",
            "",
            *pairs_table(pairs, "learned over fixed"),
            "",
        ]
    gpu = next((row["gpu"] for row in cells if row["gpu"]), "a CPU")
    how = (
        f"Mean ± spread over stages 1 of different seeds; {dagger(cells)}; "
        "each table is of another selection, with its own runs of the fixed mixes; seconds on a shared GPU. FLOPs of "
        "tables are matrix products of training, those up to the best dev score 6 x weights x tokens."
    )
    return "\n".join([*parts, f"{how} {gpu}, {results.date}; `{results.command}`.", ""])


def _in_words(row: Tree) -> str:
    """Which pair it is.

    >>> _in_words({"task": "sciie", "part": "bm25", "cell": "meta-start"})
    "SciERC, a ninth of what is read the task's, on what BM25 selects"
    """
    share = "half" if row["cell"] == META else "a ninth"
    return f"{NAMES[row['task']]}, {share} of what is read the task's, {_PART_TITLES[row['part']]}"


def main() -> None:
    """Prepare bundles, or collect what came back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "collect"))
    parser.add_argument("tasks", nargs="*", help=f"to prepare: {', '.join(TASKS)}; all")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS), help="to prepare")
    parser.add_argument("--arms", nargs="*", default=[], help="some of the part's; all")
    parser.add_argument("--name", default="", help="of the bundle with some arms, beside task and part")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the sample data")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mix", help="where everything goes")
    parser.add_argument("--results", type=Path, help="to collect: what came back from the GPU")
    given = parser.parse_args()
    try:
        if unknown := [task for task in given.tasks if task not in TASKS]:
            raise InputError(f"no task is named {unknown[0]!r}", hint=f"known: {', '.join(TASKS)}")
        if given.arms and not given.name:
            raise InputError("some arms are not their whole part", key="--name", hint="give the bundle a name")
        if given.step == "prepare":
            for task in given.tasks or TASKS:
                for part in given.parts:
                    prepare(task, part, given.data, given.out, given.arms, given.name)
        elif given.results is None:
            raise InputError("name the folder of what came back", key="--results")
        else:
            print(collect(given.results))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
