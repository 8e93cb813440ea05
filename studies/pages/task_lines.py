"""A line for each task: the scores of some variants, and the leads of some over others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from endtask.reporting.format import metric_name
from studies.tables import TASKS, select

Row = dict[str, Any]


def task_lines(rows: Sequence[Row], variants: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the cells of the table: task, metric, a score for each variant, a lead for each pair; "" if not measured."""
    pairs = list(pairs)
    return [_line(of_task, variants, pairs) for task in TASKS if (of_task := select(rows, task=task))]


def _line(rows: list[Row], variants: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    metric = next(row["metric"] for row in rows if row["kind"] == "cell")
    scores = [_score(select(rows, kind="run", variant=name)) for name in variants]
    leads = [_lead(select(rows, kind="pair", cell=better, over=worse)) for better, worse in pairs]
    return [TASKS[rows[0]["task"]], metric_name(metric), *scores, *leads]


def _score(runs: list[Row]) -> str:
    if not runs:
        return ""
    test, clean = ([score for run in runs for score in run[part]] for part in ("test", "leak_free"))
    spread = f" ± {100 * stdev(test):.1f}" if len(test) > 1 else ""
    return f"{100 * fmean(test):.1f}{spread}" + (f" ({100 * fmean(clean):.1f})" if clean and clean != test else "")


def _lead(pairs: list[Row]) -> str:
    if not pairs:
        return ""
    pair = pairs[0]
    if "leak_free_lead" in pair:
        return f"{100 * pair['leak_free_lead']:+.1f} (p {pair['leak_free_p']:.3f})"
    low, high = (100 * end for end in pair["interval"])
    return f"{100 * pair['lead']:+.1f} [{low:+.1f}, {high:+.1f}]"
