"""The figures of the weighting benchmark as a table."""

from __future__ import annotations

from benchmarks.results_file import Results
from benchmarks.weighting.cases import AUTHORS, DEFAULT, EQUAL, META, PAPER
from benchmarks.weighting.summary import step_milliseconds

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
