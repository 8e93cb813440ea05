"""Format rows of results files as Markdown tables, alike for all pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from studies.stored_results import add_holm

Tree = dict[str, Any]
TASKS = {
    "chemprot": "ChemProt",
    "sciie": "SciERC",
    "citation_intent": "ACL-ARC",
    "trec": "TREC",
    "csabstruct": "CSAbstruct",
    "cola": "CoLA",
    "stsb": "STS-B",
    "hyperpartisan": "HyperPartisan",
    "agnews": "AGNews",
    "pubmed_sections": "PubMed sections",
    "sst2": "SST-2",
    "imdb": "IMDB",
    "ct": "tagging",
    "ad": "acronyms",
}
"""The names of tasks on pages, in their order."""


def select(rows: Iterable[Tree], **values: object) -> list[Tree]:
    """Return the rows that have all of these values.

    >>> select([{"kind": "run"}, {"kind": "cell", "task": "a"}], kind="cell", task="a")
    [{'kind': 'cell', 'task': 'a'}]
    """
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Return the lines of a table; all but the first `left` columns are aligned to the right.

    >>> markdown(["", "score"], [["a", "1"]])
    ['|  | score |', '|---|---:|', '| a | 1 |']
    """
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * left}{'---:|' * (len(heads) - left)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def score_table(rows: Sequence[Tree], *, against: str, metric: str) -> list[str]:
    """Return the lines of a table of variants with their tests and costs; a dagger marks a clear difference."""
    has_leaks = any("leak_free" in row for row in rows)
    has_intervals = any("interval" in row for row in rows)
    heads = ["", metric, f"against {against}", *(["95%"] if has_intervals else []), "p", "Holm's"]
    heads += ["leak-free", "p", "Holm's"] if has_leaks else []
    lines = []
    for row in rows:
        cells = [row["title"], mean_std(row), lead(row) if "lead" in row else ""]
        cells += [interval_text(row)] if has_intervals else []
        cells += [_shown(row, name, "{:.4f}") for name in ("p", "p_holm")]
        if has_leaks:
            cells += [percent(row["leak_free"]) if "leak_free" in row else ""]
            cells += [_shown(row, name, "{:.4f}") for name in ("leak_free_p", "leak_free_p_holm")]
        lines.append(
            [*cells, str(row["models"]), _shown(row, "flops", "{:.2g}"), _shown(row, "train_seconds", "{:.0f} s")]
        )
    return markdown([*heads, "models", "FLOPs", "training"], lines)


def pairs_table(rows: Iterable[Tree], head: str) -> list[str]:
    """Return the lines of a table of pairs of variants; Holm's p is over all of them."""
    tested = [dict(row) for row in rows]
    add_holm(tested)
    has_leaks = any("leak_free_p" in row for row in tested)
    lines = []
    for row in tested:
        cells = [row["title"], lead(row), interval_text(row), f"{row['p']:.4f}", f"{row['p_holm']:.4f}"]
        if has_leaks:
            cells += [f"{100 * row['leak_free_lead']:+.1f}" if "leak_free_lead" in row else ""]
            cells += [_shown(row, name, "{:.4f}") for name in ("leak_free_p", "leak_free_p_holm")]
        lines.append(cells)
    return markdown(["", head, "95%", "p", "Holm's", *(["leak-free", "p", "Holm's"] if has_leaks else [])], lines)


def cost_to_best(rows: Sequence[Tree], variants: Sequence[Tree]) -> list[str]:
    """Return a list of each variant's cost up to its best dev score, and its last learned weights."""
    lines = []
    for variant in variants:
        if curves := select(rows, cell=variant["cell"]):
            flops, seconds = (fmean(row[f"{cost}_to_best"] for row in curves) for cost in ("flops", "seconds"))
            names = sorted({name for row in curves for name in row["weights"]})
            means = {name: fmean(row["weights"].get(name, 0.0) for row in curves) for name in names}
            weights = ", ".join(f"{name} {_weight(value)}" for name, value in means.items())
            line = f"- {variant['title']}: best on dev after {flops:.2g} FLOPs, {seconds:.0f} s"
            lines.append(line + (f"; last weights: {weights}" if weights else ""))
    return lines


def lead(row: Tree) -> str:
    """Return the difference in points: † if it is clear, ‡ if only p is small, since there is no interval over seeds.

    >>> lead({"lead": 0.0312, "p_holm": 0.01}), lead({"lead": 0.0312, "p_holm": 0.01, "interval": [0.01, 0.05]})
    ('+3.1‡', '+3.1†')
    """
    mark = "†" if "interval" in row else "‡"
    return f"{100 * row['lead']:+.1f}{mark if is_clear(row) else ''}"


def is_clear(row: Tree) -> bool:
    """Return whether Holm's p is below .05 and the interval, if there is one, leaves out 0.

    >>> is_clear({"p_holm": 0.01}), is_clear({"p_holm": 0.01, "interval": [-0.1, 0.4]})
    (True, False)
    """
    low, high = row.get("interval", (1.0, 1.0))
    return bool(row["p_holm"] < 0.05 and (low > 0 or high < 0))


def dagger(rows: Iterable[Tree]) -> str:
    """Return the meaning of a dagger for the text below a table.

    >>> dagger([{"p_holm": 0.01}])
    "‡ where Holm's p, over rows, is below .05; there is no interval over seeds, and other seeds may differ"
    """
    if not any("interval" in row for row in rows):
        return "‡ where Holm's p, over rows, is below .05; there is no interval over seeds, and other seeds may differ"
    return "† where Holm's p, over rows, is below .05 and the 95% interval, over rows and seeds, leaves out 0"


def interval_text(row: Tree) -> str:
    """Return the interval of a difference in points.

    >>> interval_text({"interval": [-0.004, 0.0312]}), interval_text({})
    ('-0.4 to +3.1', '')
    """
    return "{:+.1f} to {:+.1f}".format(*(100 * end for end in row["interval"])) if "interval" in row else ""


def percent(value: float) -> str:
    """Return a score in percent.

    >>> percent(0.7512)
    '75.1'
    """
    return f"{100 * value:.1f}"


def mean_std(row: Tree) -> str:
    """Return a mean score and its standard deviation in percent."""
    return f"{percent(row['mean'])} ± {percent(row['std'])}"


def gpu_of(rows: Iterable[Tree]) -> str:
    """Return the device of the first row that names one."""
    return next((row["gpu"] for row in rows if row.get("gpu")), "a CPU")


def _weight(value: float) -> str:
    """Return a weight with two significant digits.

    >>> _weight(0.947), _weight(0.0024)
    ('0.95', '0.0024')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _shown(row: Tree, name: str, form: str) -> str:
    """Return a formatted value, an empty string if it is missing or 0."""
    return form.format(row[name]) if row.get(name) else ""
