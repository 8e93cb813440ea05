"""The page of learned weights inside TLM (mix.yaml): each task and selection against its best fixed mix on dev."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from studies.stored_results import Compared
from studies.tables import TASKS, cost_to_best, dagger, gpu_of, pairs_table, score_table, select

Tree = dict[str, Any]
PARTS = {"bm25": "on what BM25 selects", "iss": "on a selection by influence (ISS)"}
LEARNED = {"meta": "equal", "meta-start": "equal-start"}
"""Variants with learned weights, and the variants whose weights stay at their initial values."""


def best_fixed(compared: Compared) -> str:
    """Return the fixed mix with the best dev score."""
    fixed = [name for name in compared.runs if name == "alone" or name.startswith("rho1-")]
    return max(fixed, key=lambda name: fmean(compared.models(name, "dev")))


def pairs(compared: Compared) -> list[Tree]:
    """Return the differences of learned weights over their initial values, all else equal."""
    trained = [(learned, fixed) for learned, fixed in LEARNED.items() if {learned, fixed} <= set(compared.runs)]
    return [{"cell": learned, "over": fixed, **compared.over(learned, fixed)} for learned, fixed in trained]


def mix_tables(results: Results) -> str:
    """Return a table for each task and selection, then the pairs."""
    rows: list[Tree] = results.rows
    cells, parts = select(rows, kind="cell"), []
    for task, part in product(("chemprot", "sciie"), PARTS):
        if found := select(cells, task=task, part=part):
            best = next(row["title"] for row in found if row["cell"] == row["against"])
            against = f"{best}, the fixed mix that is best on dev"
            lines = score_table(found, against=against, metric=metric_name(found[0]["metric"]))
            curves = select(rows, kind="curve", task=task, part=part)
            parts += [f"**{TASKS[task]}, {PARTS[part]}**", "", *lines, "", *cost_to_best(curves, found), ""]
    if learned := [row | {"title": _pair_title(row)} for row in select(rows, kind="pair")]:
        parts += ["**Learned weights against the same weights held fixed**", ""]
        parts += [*pairs_table(learned, "learned over fixed"), ""]
    how = (
        f"Mean ± spread over pre-trainings of different seeds; {dagger(cells)}; each table is of another selection, with its "
        "own runs of the fixed mixes; seconds on a shared GPU. FLOPs of tables are matrix products of training, those up "
        "to the best dev score 6 x weights x tokens."
    )
    where = f"{gpu_of(cells)}, {results.date}; `endtask compare studies/mix.yaml`."
    return "\n".join([*parts, f"{how} {where}", ""])


def _pair_title(row: Tree) -> str:
    share = "half" if row["cell"] == "meta" else "a ninth"
    return f"{TASKS[row['task']]}, {share} of the tokens from the task, {PARTS[row['part']]}"
