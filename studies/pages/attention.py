"""The table of attention heads: the runs of each variant, the mean over their seeds, and the pretrained encoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from benchmarks.results_file import Results
from studies.tables import TASKS as NAMES
from studies.tables import markdown

Tree = dict[str, Any]
_HEADS = ("task", "encoder", "models", "width", "layers", "heads", "positional", "vertical", "same class")
_TITLES = {"tlm": "random weights, text by BM25 rank", "random": "random weights, text at random"}


def attention_table(results: Results) -> str:
    """Return the table of heads by kind."""
    groups: dict[tuple[str, str, str], list[Tree]] = {}
    for row in results.rows:
        key = str(row["task"]), str(row["cell"]), str(row.get("state", ""))
        groups.setdefault(key, []).append(row)
    lines = markdown(_HEADS, [list(_cells(*key, rows)) for key, rows in groups.items()], left=2)
    rows = results.rows
    texts = f"Over {rows[0]['texts']} dev texts or all; mean over seeds; same class: share of the 10 nearest texts"
    if reason := results.summary.get("undecided_because"):
        texts = f"These runs decide nothing: {reason}. {texts}"
    return "\n".join([*lines, "", f"{texts}. Made by `{results.command}`, {results.date}.", ""])


def _cells(task: str, cell: str, state: str, rows: Sequence[Tree]) -> Iterator[str]:
    title = _TITLES.get(cell, f"`{cell}`")
    tokens = f", {fmean(row['tokens'] for row in rows) / 1e6:.1f} M tokens" if state else ""
    yield from (NAMES.get(task, task), f"{title}, {state}{tokens}" if state else title, str(len(rows)))
    yield from (str(rows[0][key]) for key in ("width", "layers", "heads"))
    for kind in ("positional", "vertical"):
        yield f"{fmean(row[kind] for row in rows):.1f} ({fmean(row[kind] / row['heads'] for row in rows):.0%})"
    shares = [row["same_class"] for row in rows if row["same_class"] is not None]
    yield f"{fmean(shares):.0%} (chance {rows[0]['by_chance']:.0%})" if shares else ""
