"""The summary and the page of `friendly.json`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.results_file import Results

Row = dict[str, Any]


def summarize(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the headline statistics of the rows so far: losses and differences in points."""
    formats = [row for row in rows if row["measure"] == "format"]
    runs = [row for row in rows if row["measure"] == "first_run" and "error" not in row]
    summary: dict[str, Any] = {
        "formats_read": sum(row["read"] for row in formats),
        "formats_tried": len(formats),
        "first_runs": len(runs),
    }
    if not runs:
        return summary
    return summary | {
        "budget_error_percent_90s": max((row["budget_error_percent"] for row in runs), key=abs),
        "onnx_speedup_int8": statistics.median(row["int8_speedup"] for row in runs),
        "onnx_score_loss": 100 * statistics.fmean(row["int8_score_loss"] for row in runs),
        "first_run_vs_tfidf_points": 100 * statistics.fmean(row["difference"] for row in runs),
    }


def friendly_table(results: Results) -> str:
    """Return the table of the first runs and what the summary says."""
    rows: list[Row] = [dict(row) for row in results.rows]
    runs = [row for row in rows if row["measure"] == "first_run" and "error" not in row]
    head = [
        "| task | train rows | score | TF-IDF | difference | p | training | whole run | int8 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines = [*head, *map(_line, runs), ""] if runs else ["First runs have not been measured yet.", ""]
    return "\n".join([*lines, *_notes(results), ""])


def _line(row: Row) -> str:
    low, high = (100 * bound for bound in row["interval"])
    difference = f"{100 * row['difference']:+.1f} [{low:.1f}, {high:.1f}]"
    return (
        f"| {row['task']} | {row['train_rows']:,} | {row['metric']} {100 * row['score']:.1f} "
        f"| {100 * row['tfidf_score']:.1f} | {difference} | {row['p_value']:.3f} | {row['training_seconds']:.0f} s "
        f"| {row['run_seconds']:.0f} s | {row['int8_speedup']:.1f} x, {-100 * row['int8_score_loss']:+.1f} points |"
    )


def _notes(results: Results) -> list[str]:
    summary: dict[str, Any] = results.summary
    unread = [
        f"{row['kind']} {row['format']}" for row in results.rows if row["measure"] == "format" and not row["read"]
    ]
    formats = f"{summary['formats_read']} of {summary['formats_tried']} formats are read without a setting"
    notes = [formats + (f"; not {', '.join(unread)}." if unread else ".")]
    if "first_run_vs_tfidf_points" in summary:
        notes.append(
            f"Mean difference to TF-IDF: {summary['first_run_vs_tfidf_points']:+.1f} points; largest error of the budget of "
            f"90 s: {summary['budget_error_percent_90s']:+.0f}%. Intervals and p are over test rows and fine-tuning seeds, "
            "with one pre-training each. int8: latency for one text on the CPU against torch, and the change of the score on dev."
        )
    machine = f"{results.machine.cores} cores ({results.machine.cpu}), {results.date}"
    return [*notes, f"Measured by `{results.command}` on {machine}."]
