"""All tables at a glance, as an SVG: how far each way to train lies above masked LM before the task."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.compared import is_sure
from benchmarks.results_file import Results
from benchmarks.tartan.cells import AGAINST, BODIES, HEADS, NAMES, PLAIN
from endtask.reporting.plots import DotRow, dot_chart, picture

Tree = dict[str, Any]
TABLES = ("tapt", "dapt-tapt", "dapt")
LEGEND = {PLAIN: "plain fine-tuning", "mt": "MT: equal weights", "meta": "META: learned weights"}


def tartan_picture(results: Results) -> str:
    """A dot for each cell, by how many points it lies above the reference of its table; filled where that is sure."""
    rows: list[DotRow] = []
    for encoder in BODIES:
        for table in TABLES:
            if leads := _leads(results, encoder, table):
                rows.append(DotRow(f"{HEADS[table].split(':')[0]}, {BODIES[encoder]}"))
                rows += [DotRow(NAMES[task], _dots(cells)) for task, cells in leads.items()]
    chart = dot_chart(
        rows,
        list(LEGEND.values()),
        title="Points above masked LM before the task",
        x_label="filled: Holm's p below .05; hollow: not significant",
    )
    return picture("Scores above masked LM before the task, in points: plain fine-tuning, MT and META", [chart])


def _dots(cells: dict[str, tuple[float, bool]]) -> tuple[tuple[int, float, bool], ...]:
    ways = list(LEGEND)
    return tuple((ways.index(way), lead, sure) for way, (lead, sure) in cells.items())


def _leads(results: Results, encoder: str, table: str) -> dict[str, dict[str, tuple[float, bool]]]:
    """By task and way to train, the points above the reference and whether they are sure."""
    found: dict[str, dict[str, tuple[float, bool]]] = {}
    ways = {PLAIN: PLAIN, f"mt-{AGAINST[table]}": "mt", f"meta-{AGAINST[table]}": "meta"}
    rows: Iterable[Tree] = (row for row in results.rows if row["kind"] == "cell")
    for row in rows:
        if (row["body"], row["table"]) == (encoder, table) and row["cell"] in ways and row.get("lead") is not None:
            lead = (100 * row["lead"], is_sure(row))
            found.setdefault(row["task"], {})[ways[row["cell"]]] = lead
    # A table that has only plain fine-tuning, which all of them share, says nothing of its own.
    return {task: found[task] for task in NAMES if found.get(task, {}).keys() - {PLAIN}}
