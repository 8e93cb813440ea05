"""The headline figures of the weighting benchmark, and its table."""

from __future__ import annotations

from statistics import median

from benchmarks.job import ratio
from benchmarks.results_file import Results
from benchmarks.weighting.ours import AUTHORS, DEFAULT, EQUAL, META, PAPER, Row

GOALS = ("meta_step_over_equal_step", "meta_step_over_equal_step_default", "speedup_vs_authors_way")
"""The figures that a whole results file has."""


def summarize(rows: list[Row]) -> Row:
    """All headline figures that the rows allow; those of a failed or missing measurement are left out."""
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
    return {name: figure for name, figure in statistics.items() if figure is not None}


def step_milliseconds(rows: list[Row], engine: str) -> float | None:
    """A step of an engine: the median over repeats; None where not measured.

    The mean over all steps of a repeat, for of the default only every fourth has a look at held-out data.
    """
    found = [1000 * row["seconds"] / row["steps"] for row in rows if row["engine"] == engine and "error" not in row]
    return round(median(found), 3) if found else None


NAMES = {
    EQUAL: "equal weights (MT)",
    META: "learned weights, a look at every step",
    DEFAULT: "learned weights, default settings",
    PAPER: "learned weights, the paper's head",
    AUTHORS: "the TARTAN authors' way (Hugging Face BERT)",
}


def weighting_table(results: Results) -> str:
    """Milliseconds of a step by every way, against equal weights."""
    rows = list(results.rows)
    equal = step_milliseconds(rows, EQUAL)
    table = ["| a step of | milliseconds | against equal weights |", "|---|---:|---:|"]
    for engine, name in NAMES.items():
        found = step_milliseconds(rows, engine)
        if found is not None and equal is not None:
            table.append(f"| {name} | {found:.1f} | {found / equal:.2f} |")
    first = rows[0]
    where = results.machine.gpu if first["device"] == "cuda" else results.machine.cpu
    how = (
        f"Three objectives with {first['rows']} texts of 128 tokens each, {first['held_out']} + {first['held_out']} "
        f"held-out texts, size {first['size']}, on one {where}, {results.date}; `{results.command}`."
    )
    return "\n".join([*table, "", how, ""])


def _step_ratio(rows: list[Row], slow: str, quick: str) -> float | None:
    return ratio(step_milliseconds(rows, slow), step_milliseconds(rows, quick))
