"""The evidence as a results file, and that file as tables.

    .venv/bin/python -m benchmarks.influence.page --results DIR

DIR holds what came back from the GPU: `TASK-BUNDLE.json` of `endtask compare --results`, and `TASK.npz` of scoring;
and `TASK-chosen.json`, which the step `bundle` of `benchmarks.influence.prepare` wrote as `chosen.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compared import Compared, collect_from_command_line, dagger, markdown
from benchmarks.influence.cells import KNOWN, SCORINGS, SHOWN, TASKS, Scoring, against, order_of, titles
from benchmarks.results_file import RESULTS, Results, write_results
from endtask.errors import InputError
from endtask.reporting.format import metric_name

Tree = dict[str, Any]
NAMES = {"chemprot": "ChemProt", "sciie": "SciERC"}
_HEADS = {
    "main": "How the fifth is chosen",
    "sizes": "How much is kept",
    "steps": "How long it is trained",
    "layers": "Whose gradients choose",
}
COMMAND = "python -m benchmarks.influence.page"


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Judge all files together and write `influence.json`."""
    rows: list[Tree] = []
    summary: Tree = {}
    for task in TASKS:
        files = [file for table in KNOWN if (file := folder / f"{task}-{table}.json").exists()]
        if not files:
            continue
        compared = Compared.read(files)
        rows += [{"kind": "run", "task": task, "gpu": compared.gpu, **run} for run in compared.raw()]
        for table in SHOWN:
            first = next((cell for cell in (against(table), *titles(table)) if cell in compared.runs), None)
            found = compared.table(titles(table), first) if first else []
            if _has_own_arms(table, found):
                common = {"kind": "cell", "task": task, "table": table, "metric": compared.measure.name}
                rows += [{**common, "against": first, **row} for row in found]
        rows += _chosen_rows(task, folder / f"{task}-chosen.json")
        rows += _scoring_rows(task, folder / f"{task}.npz")
        summary |= {f"{task}_{row['cell']}": row["mean"] for row in _cells_of(rows, task, "main")}
    if not rows:
        raise InputError("no results file of a bundle there", path=folder, hint="such as chemprot-main.json")
    return write_results("influence", COMMAND, rows, summary, results)


def _cells_of(rows: list[Tree], task: str, table: str) -> list[Tree]:
    """The cells of a task in one of the page's tables."""
    return [row for row in rows if (row["kind"], row["task"], row.get("table")) == ("cell", task, table)]


def _chosen_rows(task: str, file: Path) -> list[Tree]:
    """What the arms chose, in figures that need no training."""
    if not file.exists():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    shown = titles("main")
    return [
        {"kind": "chosen", "task": task, "cell": cell, "title": shown[cell], **found[cell]}
        for cell in shown
        if cell in found
    ]


def _chosen(rows: list[Tree]) -> list[str]:
    found = [row for row in rows if row["kind"] == "chosen"]
    if not found:
        return []
    lines = ["|  |  | passages | KL from the task | label words |", "|---|---|---:|---:|---:|"]
    for row in found:
        statistics = f"{row['passages']:,} | {row['kl']:.3f} | {row['label_words']:.2%}"
        lines.append(f"| {NAMES[row['task']]} | {row['title']} | {statistics} |")
    return ["**What was chosen**", "", *lines, ""]


def _has_own_arms(table: str, found: list[Tree]) -> bool:
    """Whether something was trained for a table beside what it shares with others."""
    own = {arm.name for bundle in SHOWN[table] for arm in KNOWN[bundle]} - {against(table)}
    return not own.isdisjoint(row["cell"] for row in found)


def _scoring_rows(task: str, scores: Path) -> list[Tree]:
    """What fitting and scoring cost, and how alike each order is to that of the last layer of the same model."""
    if not scores.exists():
        return []
    with np.load(scores) as file:
        facts = json.loads(str(file["facts"]))
        ranks = {name: np.argsort(np.argsort(file[name])) for name in file.files if name != "facts"}
    rows = []
    for name, cost in facts.items():
        row = {"kind": "scoring", "task": task, "order": name} | {k: v for k, v in cost.items() if k != "plan"}
        if SCORINGS.get(name, Scoring()).size == SCORINGS[order_of("last")].size and order_of("last") in ranks:
            row["rank_correlation"] = round(float(np.corrcoef(ranks[name], ranks[order_of("last")])[0, 1]), 4)
        rows.append(row)
    return rows


def influence_table(results: Results) -> str:
    """All tables of the page."""
    parts: list[str] = []
    rows: list[Tree] = results.rows
    for table, head in _HEADS.items():
        for task in TASKS:
            found = _cells_of(rows, task, table)
            if found:
                metric = metric_name(found[0]["metric"])
                title = next(row["title"] for row in found if row["cell"] == row["against"])
                shown = markdown(found, against=title, metric=metric)
                parts += [f"**{head}, {NAMES[task]}**", "", shown, ""]
    parts += [*_chosen(rows), *_costs(rows)]
    gpu = next((row["gpu"] for row in rows if row["kind"] == "run"), None)
    how = f"Mean ± spread over all models (pre-training seeds x fine-tuning seeds); {dagger(rows)}"
    return "\n".join([*parts, f"{how}. Trained on {gpu or 'a CPU'}, {results.date}; `{results.command}`.", ""])


def _costs(rows: list[Tree]) -> list[str]:
    found = [row for row in rows if row["kind"] == "scoring"]
    if not found:
        return []
    heads = ["", "scoring model", "order", "candidates", "fitting", "scoring", "bytes a target", "ranks like last's"]
    heads += ["like those under other masks", "like the other model's", "like those by harm"]
    lines = [f"| {' | '.join(heads)} |", f"|---|---|---|{'---:|' * (len(heads) - 3)}"]
    for row in found:
        cells = [NAMES[row["task"]], row["size"], _order_in_words(row["order"]), f"{row['candidates']:,}"]
        timed = "seconds" in row  # not where the GPU trained other models at the same time
        cells += [f"{row['fitting_seconds']:.0f} s", f"{row['seconds']:.1f} s"] if timed else ["", ""]
        cells += [f"{row['bytes_per_target']:,.0f}"]
        cells += [
            f"{row[key]:.2f}" if key in row else "" for key in ("rank_correlation", "agreement", "models", "harm")
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return ["**What choosing costs**", "", *lines, ""]


def _order_in_words(name: str) -> str:
    return name.removeprefix("layer_").replace("_", " ")


if __name__ == "__main__":
    collect_from_command_line(collect, __doc__)
