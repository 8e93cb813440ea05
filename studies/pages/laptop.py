"""The section of the study `laptop`: what ten and two minutes of two cores give on each task, next to TF-IDF."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from studies.pages.question import verdicts
from studies.pages.task_lines import task_lines
from studies.tables import markdown

TITLES = {
    "tfidf": "TF-IDF",
    "two": "two minutes",
    "two-amx": "two, AMX",
    "ten": "ten minutes",
}
PAIRS = (("two", "tfidf"), ("two-amx", "tfidf"), ("ten", "tfidf"))


def laptop_section(results: Results) -> str:
    """Return the verdicts over all tasks, and a line for each task."""
    rows: list[dict[str, Any]] = [dict(row) for row in results.rows]
    heads = ["task", "metric", *TITLES.values(), *(f"{TITLES[one]} over {TITLES[other]}" for one, other in PAIRS)]
    note = (
        "One model each; in brackets without test rows that are in train. Differences with 95% intervals over rows, or p; "
        "where there are leaks, those of the leak-free rows. Trained on a CPU"
    )
    table = markdown(heads, task_lines(rows, list(TITLES), PAIRS), left=2)
    return "\n".join([*verdicts("laptop", rows), "", *table, "", f"{note}, {results.date}; `{results.command}`.", ""])
