"""The results of the comparison: a row for each run, statistics over the rows, and their text and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results_file import Results
from endtask.evaluation.significance import bootstrap_interval, holm, metric_permutation
from examples.digits.images import ImageTask
from examples.digits.methods import METHODS, Outcome, Plan
from studies.tables import dagger, interval_text, lead, markdown

Row = dict[str, Any]
AGAINST = "agnostic"


def row_of(method: str, seed: int, task: ImageTask, plan: Plan, outcome: Outcome, cpu_seconds: float) -> Row:
    """Return the row of a run; `right` has a 1 for each test image with a correct prediction."""
    is_right = outcome.predicted == task.test.labels
    return {
        "method": method,
        "seed": seed,
        **{name: len(getattr(task, name)) for name in ("train", "dev", "test", "auxiliary")},
        "steps": plan.steps + plan.finetune_steps,
        "accuracy": round(float(is_right.mean()), 5),
        "dev_accuracy": round(outcome.dev_accuracy, 5),
        "cpu_seconds": round(cpu_seconds, 2),
        "task_weight": round(outcome.task_weights[-1], 4) if outcome.task_weights else None,
        "right": "".join(map(str, is_right.astype(int).tolist())),
    }


def summary_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return statistics of every method for each number of train images; Holm's p counts the methods of one number."""
    amounts = sorted({row["train"] for row in rows})
    return {"methods": [cell for amount in amounts for cell in _cells([row for row in rows if row["train"] == amount])]}


def _cells(rows: Sequence[Row]) -> list[Row]:
    runs = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    cells = {method: _cell(method_runs) for method, method_runs in runs.items()}
    others = [method for method in METHODS if method != AGAINST]
    p_values = [p_value(runs[method], runs[AGAINST]) for method in others]
    for method, p, corrected in zip(others, p_values, holm(p_values), strict=True):
        difference = cells[method]["mean"] - cells[AGAINST]["mean"]
        ends = interval(runs[method], runs[AGAINST])
        cells[method] |= {"lead": round(difference, 5), "interval": [round(end, 5) for end in ends]}
        cells[method] |= {"p": round(p, 5), "p_holm": round(corrected, 5)}
    return list(cells.values())


def _cell(runs: Sequence[Row]) -> Row:
    scores = [row["accuracy"] for row in runs]
    cell = {name: runs[0][name] for name in ("method", "train", "dev", "test", "auxiliary", "steps")}
    cell |= {"seeds": len(runs), "mean": round(fmean(scores), 5)}
    cell |= {"std": round(stdev(scores) if len(scores) > 1 else 0.0, 5)}
    cell["cpu_seconds"] = round(fmean(row["cpu_seconds"] for row in runs), 2)
    if weights := [row["task_weight"] for row in runs if row["task_weight"] is not None]:
        cell["task_weight"] = [round(fmean(weights), 3), min(weights), max(weights)]
    return cell


def p_value(runs: Sequence[Row], others: Sequence[Row]) -> float:
    """Return p of the difference between two mean accuracies, by swapping the predictions for test images."""
    first, second = _right(runs), _right(others)
    return metric_permutation(first, second, np.ones(first.shape[1], dtype=np.int64), "accuracy")


def interval(runs: Sequence[Row], others: Sequence[Row]) -> tuple[float, float]:
    """Return the 95% interval of the same difference over other test images and other seeds, which both share."""
    first, second = _right(runs), _right(others)
    return bootstrap_interval(first, second, np.ones(first.shape[1], dtype=np.int64), "accuracy", paired_runs=True)


def _right(runs: Sequence[Row]) -> NDArray[np.int64]:
    return np.array([[int(digit) for digit in row["right"]] for row in runs], dtype=np.int64)


def as_text(cells: Sequence[Row]) -> str:
    """Return the statistics of all methods as plain lines."""
    lines = []
    for cell in cells:
        if cell["method"] == METHODS[0]:
            lines.append(_amounts(cell))
        line = f"{cell['method']:<10}{100 * cell['mean']:6.2f} +- {100 * cell['std']:.2f}"
        line += f"{cell['cpu_seconds']:8.1f} s"
        if "p" in cell:
            line += f"{100 * cell['lead']:+8.2f} against {AGAINST} ({interval_text(cell)}), p = {cell['p']:.4f}, "
            line += f"Holm's {cell['p_holm']:.4f}"
        lines.append(line)
        if "task_weight" in cell:
            lines.append(_weight(cell))
    return "\n".join(lines)


def digits_table(results: Results) -> str:
    """Return a table for each number of train images."""
    cells: list[Row] = summary_of(results.rows)["methods"]
    heads = ("method", "accuracy", f"against `{AGAINST}`", "95%", "p", "Holm's", "CPU seconds")
    parts = []
    for _, group in groupby(cells, key=lambda cell: cell["train"]):
        methods = list(group)
        parts += [_amounts(methods[0]) + ":", "", *markdown(heads, map(_columns, methods))]
        parts += ["", *(f"{_weight(cell)}." for cell in methods if "task_weight" in cell), ""]
    first = cells[0]
    how = (
        f"Mean ± spread over {first['seeds']} seeds, each a run of {first['steps']} steps; {dagger(cells)}; rows are "
        f"test images, and Holm's counts a table. {len(results.rows)} runs on one core of a shared machine "
        f"({results.machine.cpu}), {_minutes(results.rows):.0f} minutes in all, {results.date}; `{results.command}`."
    )
    return "\n".join([*parts, how, ""])


def _minutes(rows: Sequence[Row]) -> float:
    return math.fsum(row["cpu_seconds"] for row in rows) / 60


def _columns(cell: Row) -> list[str]:
    score, seconds = f"{100 * cell['mean']:.1f} ± {100 * cell['std']:.1f}", f"{cell['cpu_seconds']:.1f}"
    if "p" not in cell:
        return [f"`{cell['method']}`", score, "", "", "", "", seconds]
    tested = [lead(cell), interval_text(cell), f"{cell['p']:.4f}", f"{cell['p_holm']:.4f}"]
    return [f"`{cell['method']}`", score, *tested, seconds]


def _amounts(cell: Row) -> str:
    return f"{cell['train']} train, {cell['dev']} dev and {cell['test']} test images, {cell['auxiliary']} others"


def _weight(cell: Row) -> str:
    mean, least, most = cell["task_weight"]
    return f"Weight of the task after the last step of `{cell['method']}`: {mean:.2f} ({least:.2f} to {most:.2f})"
