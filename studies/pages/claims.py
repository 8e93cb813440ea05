"""The page of the papers' claims: a line for each, with the paper's number, ours, its interval, its test and a verdict."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from studies.tables import markdown

Tree = dict[str, Any]
_HEADS = ("", "claim", "the paper", "here: difference [95%]", "all together", "p", "verdict")


def claims_table(results: Results) -> str:
    """Return the table of the claims."""
    lines = markdown(_HEADS, [_cells(dict(row)) for row in results.rows], left=len(_HEADS))
    decided, hold = results.summary["claims_decided"], results.summary["claims_hold"]
    counts = f"{decided} of {results.summary['claims']} claims are decided, {hold} of them hold."
    return "\n".join([counts, "", *lines, "", f"Made by `{results.command}`, {results.date}.", ""])


def _cells(row: Tree) -> list[str]:
    pooled = row["pooled"]
    why = f"{row['verdict']}: {row['reason']}" if row["reason"] else row["verdict"]
    return [
        str(row["claim"]),
        row["text"],
        row["paper"],
        "; ".join(_difference(part) for part in row["comparisons"]) or "not run",
        "" if pooled is None else _interval(pooled),
        "" if pooled is None or pooled["p"] is None else _p_value(pooled["p"]),
        why if row["verdict"] == "undecided" else f"**{why}**",
    ]


def _p_value(p_value: float) -> str:
    return "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}"


def _difference(part: Tree) -> str:
    """Return a comparison in words, such as `ChemProt +2.1 [0.5, 3.7]`."""
    unit = "" if part["unit"] == "points" else f" {part['unit']}"
    text = f"{part['task']} {_interval(part)}{unit}"
    return text if part["counts"] else f"({part['better']} over {part['worse'].replace('_', ' ')}: {text})"


def _interval(part: Tree) -> str:
    ends = "" if part["low"] is None else f" [{part['low']:+.1f}, {part['high']:+.1f}]"
    return f"{part['difference']:+.1f}{ends}"
