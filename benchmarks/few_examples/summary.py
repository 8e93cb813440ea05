"""The headline figures, and a table for people."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.results_file import Results

Row = dict[str, Any]
KINDS = {"pair": "pairs of a short form and a snippet", "tags": "queries with tagged words"}


def summarize(rows: list[Row]) -> Row:
    """All headline figures that the rows allow; the plain names are those of pairs."""
    statistics: Row = {}
    for kind in KINDS:
        behind = "" if kind == "pair" else f"_{kind}"
        quick, slow = (_per_minute(rows, what, kind) for what in ("side by side", "one by one"))
        if quick is not None:
            statistics[f"head_only_runs_per_minute_cpu{behind}"] = round(quick, 1)
        if quick is not None and slow is not None:
            statistics[f"speedup_vs_one_by_one{behind}"] = round(quick / slow, 1)
        for row in rows:
            if row["what"] == "latency" and row["kind"] == kind:
                statistics[f"latency_p50_ms_{row['size']}{behind}"] = round(row["torch"]["p50_ms"], 3)
                statistics[f"latency_p99_ms_{row['size']}{behind}"] = round(row["torch"]["p99_ms"], 3)
    return statistics


def _per_minute(rows: list[Row], what: str, kind: str) -> float | None:
    found = [60 * row["runs"] / row["seconds"] for row in rows if (row["what"], row["kind"]) == (what, kind)]
    return median(found) if found else None


def few_examples_table(results: Results) -> str:
    """Runs per minute side by side and one by one, and the time for one text."""
    figure = results.summary
    table = ["| head-only training, 200 labels | runs a minute | against one by one |", "|---|---:|---:|"]
    for kind, name in KINDS.items():
        behind = "" if kind == "pair" else f"_{kind}"
        runs, times = (
            figure.get(f"{key}{behind}") for key in ("head_only_runs_per_minute_cpu", "speedup_vs_one_by_one")
        )
        if runs is not None:
            table.append(f"| {name} | {runs} | {f'{times} times' if times is not None else ''} |")
    machine, first = results.machine, results.rows[0]
    where = f"{machine.cores} cores ({machine.cpu}), {results.date}; `{results.command}`"
    return "\n".join(
        [
            *table,
            "",
            f"Size {first['size']}, {first['epochs']} epochs a run, tokenising, the encoder's pass and scoring included.",
            "",
            *_latency_table(results.rows),
            f"Measured on {where}.",
            "",
        ]
    )


def _latency_table(rows: list[Row]) -> list[str]:
    """The time for one text at a time, tokenising included: torch, and ONNX Runtime where it is installed."""
    lines = ["| one at a time, p50 and p99 | size | torch | ONNX Runtime |", "|---|---|---:|---:|"]
    for row in rows:
        if row["what"] == "latency":
            times = [row["torch"], row.get("onnx", {})]
            shown = [f"{one['p50_ms']:.1f} ms, {one['p99_ms']:.1f} ms" if "p50_ms" in one else "" for one in times]
            lines.append(f"| {KINDS[row['kind']]} | {row['size']} | {shown[0]} | {shown[1]} |")
    return [*lines, ""]
