"""The headline figures and the table, drawn from the rows of all measurements."""

from __future__ import annotations

from statistics import median

from benchmarks.weighting.cases import AUTHORS, DEFAULT, EQUAL, META, PAPER, Row

GOALS = ("meta_step_over_equal_step", "meta_step_over_equal_step_default", "speedup_vs_authors_way")
"""The figures that a whole results file has."""


def summarize(rows: list[Row]) -> Row:
    """All headline figures that the rows allow; those of a failed or missing measurement are left out."""
    statistics = {
        "meta_step_over_equal_step": _ratio(rows, META, EQUAL),
        "meta_step_over_equal_step_default": _ratio(rows, DEFAULT, EQUAL),
        "meta_step_over_equal_step_paper_head": _ratio(rows, PAPER, EQUAL),
        "speedup_vs_authors_way": _ratio(rows, AUTHORS, META),
        "speedup_vs_authors_way_default": _ratio(rows, AUTHORS, DEFAULT),
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


def table(rows: list[Row]) -> str:
    """Every measurement as a line for people."""
    lines = [f"{'engine':<15}{'size':<7}{'rows':>5}{'repeat':>7}{'ms/step':>10}{'loss':>8}{'GB':>7}"]
    for row in rows:
        start = f"{row['engine']:<15}{row['size']:<7}{row['rows']:>5}{row['repeat']:>7}"
        if "error" in row:
            lines.append(f"{start}  failed: {row['error']}")
            continue
        memory = f"{row['peak_memory_bytes'] / 1e9:>7.1f}" if "peak_memory_bytes" in row else ""
        lines.append(f"{start}{1000 * row['seconds'] / row['steps']:>10.2f}{row['loss']:>8.3f}{memory}")
    return "\n".join(lines)


def _ratio(rows: list[Row], slow: str, quick: str) -> float | None:
    above, below = step_milliseconds(rows, slow), step_milliseconds(rows, quick)
    return None if above is None or below is None else round(above / below, 3)
