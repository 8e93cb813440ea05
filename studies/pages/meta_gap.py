"""The section on META inside TLM against the same weights held fixed (meta_gap.json): what the difference is."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from studies.tables import gpu_of, markdown, select

Tree = dict[str, Any]
_HEADS = ("against fixed weights", "points [95%]", "p over rows", "p over seeds", "loss on the selection", "seeds")


def meta_gap_section(results: Results) -> str:
    """Return the verdict, and a table of the variants over both tasks."""
    rows: list[Tree] = results.rows
    lines = markdown(_HEADS, [_cells(row) for row in select(rows, kind="pooled")])
    where = f"Two tasks, {gpu_of(rows)}, {results.date}; `benchmarks/results/meta_gap.json`."
    return "\n".join([_verdict(rows), "", *lines, "", where, ""])


def _verdict(rows: list[Tree]) -> str:
    family = select(rows, kind="family")[0]
    pooled = {row["variant"]: row for row in select(rows, kind="pooled")}
    slopes = [row["test_points_per_nat"] for row in select(rows, kind="loss_and_score")]
    loss, error = family["external_loss"]
    explained = loss * sum(slopes) / len(slopes)
    return (
        f"**Undecided; a part of it is clipping.** META is {_points(pooled['meta'])} points from the same weights held "
        f"fixed. Taken together, the variants whose heads are clipped by their own norm, as META's are, learn masked LM "
        f"later: the loss on the selection is {loss:.2f} ± {error:.2f} nats higher (p = "
        f"{family['external_loss_p_seeds']:.3f} over seeds), and the encoder leaves its first plateau "
        f"{family['escape_step'][0]:.0f} steps later, also where the weights cannot move (eta 1e-9). A nat costs "
        f"{-max(slopes):.0f} to {-min(slopes):.0f} points in these runs, so this is worth {explained:+.1f} points. With one "
        f"norm for encoder and heads META is {_points(pooled['meta-together'])} points from fixed weights; but fixed weights "
        f"whose heads are clipped apart are only {_points(pooled['equal-apart'])}, so no single difference is told from "
        f"chance. META without clipping is worse, {_points(pooled['meta-unclipped'])}. Dev as held-out data and the compiler "
        f"make no difference that can be told."
    )


def _points(row: Tree) -> str:
    low, high = row["interval"]
    return f"{100 * row['lead']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _cells(row: Tree) -> list[str]:
    mean, error = row["external_loss_difference"]
    p_values = [f"{row[name]:.4f}" for name in ("p", "p_seeds")]
    return [row["title"], _points(row), *p_values, f"{mean:+.2f} ± {error:.2f}", str(row["seeds"])]
