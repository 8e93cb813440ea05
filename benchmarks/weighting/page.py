"""The page of the weighting benchmark: headline statistics and table."""

from __future__ import annotations

from statistics import median

from benchmarks.job import ratio
from benchmarks.results_file import Results
from benchmarks.weighting.endtask_engine import AUTHORS, DEFAULT, EQUAL, META, PAPER, Row

GOALS = ("meta_step_over_equal_step", "meta_step_over_equal_step_default", "speedup_vs_authors_way")
"""The statistics of a complete results file."""


def summarize(rows: list[Row]) -> Row:
    """Return the headline statistics, without those of failed or missing measurements."""
    statistics = {
        "meta_step_over_equal_step": _step_ratio(rows, META, EQUAL),
        "meta_step_over_equal_step_default": _step_ratio(rows, DEFAULT, EQUAL),
        "meta_step_over_equal_step_paper_head": _step_ratio(rows, PAPER, EQUAL),
        "speedup_vs_authors_way": _step_ratio(rows, AUTHORS, META),
        "speedup_vs_authors_way_default": _step_ratio(rows, AUTHORS, DEFAULT),
        "equal_step_milliseconds": step_milliseconds(rows, EQUAL),
        "meta_step_milliseconds": step_milliseconds(rows, META),
        "measurements": sum("error" not in row for row in rows),
    }
    return {name: value for name, value in statistics.items() if value is not None}


def step_milliseconds(rows: list[Row], engine: str) -> float | None:
    """Return the time of an engine's step: the mean over steps, the median over repeats; None if not measured.

    By default META updates the weights at every fourth step only, hence the mean.
    """
    times = [1000 * row["seconds"] / row["steps"] for row in rows if row["engine"] == engine and "error" not in row]
    return round(median(times), 3) if times else None


NAMES = {
    EQUAL: "equal weights (MT)",
    META: "learned weights, updated at every step",
    DEFAULT: "learned weights, default settings",
    PAPER: "learned weights, the paper's head",
    AUTHORS: "the TARTAN authors' code (Hugging Face BERT)",
}


def weighting_table(results: Results) -> str:
    """Return the table of milliseconds of a step of every engine, against equal weights."""
    rows = list(results.rows)
    equal = step_milliseconds(rows, EQUAL)
    table = ["| a step of | milliseconds | against equal weights |", "|---|---:|---:|"]
    for engine, name in NAMES.items():
        milliseconds = step_milliseconds(rows, engine)
        if milliseconds is not None and equal is not None:
            table.append(f"| {name} | {milliseconds:.1f} | {milliseconds / equal:.2f} |")
    first = rows[0]
    where = results.machine.gpu if first["device"] == "cuda" else results.machine.cpu
    how = (
        f"Three objectives with {first['rows']} texts of 128 tokens each, {first['held_out']} + {first['held_out']} "
        f"held-out texts, size {first['size']}, on one {where}, {results.date}; `{results.command}`."
    )
    return "\n".join([*table, "", how, ""])


def _step_ratio(rows: list[Row], slow: str, quick: str) -> float | None:
    return ratio(step_milliseconds(rows, slow), step_milliseconds(rows, quick))
