"""The summary and the page of `few_labels.json`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.few_labels.draws import LABELS, TASKS
from benchmarks.results_file import Results
from endtask.evaluation.significance import bootstrap_interval

Row = dict[str, Any]
OURS, PEER = "few_labels", "setfit"


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the number of rows, and our mean lead over SetFit in points over the draws that both have on test."""
    summary: dict[str, Any] = {"rows": len(rows)}
    leads = [lead for task in TASKS for labels in LABELS if (lead := _lead(rows, task, labels, PEER)) is not None]
    if leads:
        summary["compared_with_setfit"] = len(leads)
        summary["lead_over_setfit_points"] = round(statistics.fmean(lead[0] for lead in leads), 2)
        summary["better_than_setfit"] = sum(low > 0 for _, low, _ in leads)
        summary["worse_than_setfit"] = sum(high < 0 for _, _, high in leads)
    return summary


def _chosen(rows: Sequence[Row], split: str, task: str, labels: int, method: str) -> dict[int, Row]:
    """Return the rows of a method on a task with a number of labels, by draw."""
    key = (split, task, labels, method)
    return {row["draw"]: row for row in rows if (row["split"], row["task"], row["labels"], row["method"]) == key}


def _lead(rows: Sequence[Row], task: str, labels: int, other: str) -> tuple[float, float, float] | None:
    """Return our lead over another method in points and its 95% interval over rows and draws; None without a draw."""
    ours, theirs = (_chosen(rows, "test", task, labels, method) for method in (OURS, other))
    draws = sorted(ours.keys() & theirs.keys())
    if not draws:
        return None
    first, second = (
        np.array([[int(digit) for digit in one[draw]["right"]] for draw in draws]) for one in (ours, theirs)
    )
    low, high = bootstrap_interval(
        first, second, np.ones(first.shape[1], dtype=np.int64), "accuracy", samples=2000, paired_runs=True
    )
    return 100 * float(first.mean() - second.mean()), 100 * low, 100 * high


def few_labels_table(results: Results) -> str:
    """Return a table for each split: accuracies by task and number of labels, and our lead over SetFit."""
    rows: list[Row] = [dict(row) for row in results.rows]
    parts = [
        _verdict(results),
        _leads(rows),
        _table(rows, "test", "Test"),
        _table(rows, "dev", "Dev, on which the preset was chosen"),
    ]
    machine = results.machine.gpu or results.machine.cpu
    return "\n".join([*filter(None, parts), f"Measured on {machine}, {results.date}; `{results.command}`.", ""])


def _table(rows: Sequence[Row], split: str, title: str) -> str:
    from benchmarks.few_labels.methods import METHODS

    found = {(row["task"], row["labels"]) for row in rows if row["split"] == split}
    columns = [(task, labels) for task in TASKS for labels in LABELS if (task, labels) in found]
    if not columns:
        return ""
    head = ["| accuracy (draws) | " + " | ".join(f"{task} {labels}" for task, labels in columns) + " |"]
    head.append("|---|" + "---:|" * len(columns))
    lines = []
    for method, (name, _) in METHODS.items():
        cells = [_cell(_chosen(rows, split, task, labels, method)) for task, labels in columns]
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([f"## {title}", "", *head, *lines, ""])


def _cell(of_draws: dict[int, Row]) -> str:
    values = [100 * row["accuracy"] for row in of_draws.values()]
    return f"{statistics.fmean(values):.1f} ({len(values)})" if values else ""


def _leads(rows: Sequence[Row]) -> str:
    found = [(task, labels, _lead(rows, task, labels, PEER)) for task in TASKS for labels in LABELS]
    lines = [
        f"| {task} | {labels} | {lead[0]:+.1f} [{lead[1]:.1f}, {lead[2]:.1f}] |"
        for task, labels, lead in found
        if lead is not None
    ]
    head = ["| task | labels | `few-labels` minus SetFit, points |", "|---|---:|---:|"]
    return "\n".join(["## Against SetFit", "", *head, *lines, ""]) if lines else ""


def _verdict(results: Results) -> str:
    """Return the answer to the page's question in a line."""
    summary: dict[str, Any] = results.summary
    cells = summary.get("compared_with_setfit", 0)
    wanted = len(TASKS) * len(LABELS)
    if not cells:
        return f"**Undecided**: SetFit has not been measured in any of {wanted} cells of task and number of labels.\n"
    counts = f"clearly better in {summary['better_than_setfit']}, clearly worse in {summary['worse_than_setfit']}"
    lead = f"{summary['lead_over_setfit_points']:+.1f} points on average"
    if cells < wanted:
        return f"**Undecided**: {cells} of {wanted} cells of task and number of labels are measured; in these {lead}, {counts}.\n"
    return f"**{lead}** in {cells} cells of task and number of labels, {counts} (the interval leaves out 0).\n"
