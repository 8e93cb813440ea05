"""The page of selection by influence (influence.yaml): selectors, sizes, steps, layers and costs."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from studies.tables import TASKS, dagger, gpu_of, markdown, score_table, select

Tree = dict[str, Any]
TABLES = {
    "main": "How a fifth is selected",
    "sizes": "How much is selected",
    "steps": "How many steps",
    "layers": "Which layers' gradients select",
}


def influence_tables(results: Results) -> str:
    """Return all tables of the page."""
    parts: list[str] = []
    rows: list[Tree] = results.rows
    for table, head in TABLES.items():
        for task in ("chemprot", "sciie"):
            if found := select(rows, kind="cell", task=task, table=table):
                against = next(row["title"] for row in found if row["cell"] == row["against"])
                lines = score_table(found, against=against, metric=metric_name(found[0]["metric"]))
                parts += [f"**{head}, {TASKS[task]}**", "", *lines, ""]
    parts += [*_selections(select(rows, kind="chosen")), *_costs(select(rows, kind="scoring"))]
    how = f"Mean ± spread over all models (pre-training seeds x fine-tuning seeds); {dagger(rows)}"
    where = f"Trained on {gpu_of(rows)}, {results.date}; `endtask compare studies/influence.yaml`."
    return "\n".join([*parts, f"{how}. {where}", ""])


def _selections(rows: list[Tree]) -> list[str]:
    """Return the table of statistics of the selections that need no training; the report of a run has them too."""
    lines = [
        [TASKS[row["task"]], row["title"], f"{row['passages']:,}", f"{row['kl']:.3f}", f"{row['label_words']:.2%}"]
        for row in rows
    ]
    table = markdown([" ", " ", "passages", "KL from the task", "label words"], lines, left=2)
    return ["**What was selected**", "", *table, ""] if rows else []


def _costs(rows: list[Tree]) -> list[str]:
    """Return the table of the costs of fitting and scoring, and rank correlations with other scores."""
    heads = ["", "scoring model", "order", "candidates", "fitting", "scoring", "bytes a target", "ranks like last's"]
    heads += ["like those under other masks", "like the other model's", "like those by harm"]
    lines = []
    for row in rows:
        order = row["order"].removeprefix("layer_").replace("_", " ")
        cells = [TASKS[row["task"]], row["size"], order, f"{row['candidates']:,}"]
        timed = "seconds" in row  # not measured while the GPU trained other models
        cells += [f"{row['fitting_seconds']:.0f} s", f"{row['seconds']:.1f} s"] if timed else ["", ""]
        cells += [f"{row['bytes_per_target']:,.0f}"]
        correlations = ("rank_correlation", "agreement", "models", "harm")
        lines.append([*cells, *(f"{row[key]:.2f}" if key in row else "" for key in correlations)])
    return ["**What selection costs**", "", *markdown(heads, lines, left=3), ""] if rows else []
