"""compare.html: the cells in two tables and a picture, in a page that needs nothing beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from endtask.compare.cell import CELLS
from endtask.compare.outcome import Outcome, Row
from endtask.compare.table import cost_cells, cost_columns, notes, score_cells, score_columns, verdict
from endtask.io.atomic import write_text
from endtask.reporting import format as shown
from endtask.reporting.plots import BarGroup, bar_chart

PAGE = "compare.html"


def write_page(outcome: Outcome) -> Path:
    """Write the page from what there is; returns its path."""
    page = _template().render(
        outcome=outcome,
        verdict=verdict(outcome),
        notes=notes(outcome),
        chart=chart(outcome),
        tables=[
            (score_columns(outcome), [(row, score_cells(outcome, row)) for row in outcome.rows], _SCORES),
            (cost_columns(), [(row, cost_cells(outcome, row)) for row in outcome.rows], _COSTS),
        ],
        reports={row.name: _reports(outcome, row) for row in outcome.rows},
    )
    write_text(outcome.folder / PAGE, page)
    return outcome.folder / PAGE


def chart(outcome: Outcome) -> Markup:
    """The mean score of each cell with its interval."""
    groups = []
    for row in outcome.rows:
        if row.score is not None:
            low, high = row.score.low, row.score.high
            interval = (low, high) if low is not None and high is not None else None
            groups.append(BarGroup(row.name, (row.score.mean,), (shown.score(row.score.mean),), (interval,)))
    judged = outcome.judged
    return bar_chart(groups, ("mean",), title=f"{shown.metric_name(judged.metric)} on {judged.split}")


_SCORES = (
    "In the order given. The interval of a score is that of its mean over new rows and new seeds (bootstrap, 95%); "
    "p is that of a paired permutation test over rows, Holm's holds for all tests of the table together. "
    "Rows of one group, such as those with the same text, are drawn and swapped together."
)
_COSTS = (
    "Of one run, all of its fine-tuning seeds included, as if nothing had been shared. Training is stages 1 and 2. "
    "FLOPs are counted exactly, product by product, and as 6 × parameters × tokens."
)


def _reports(outcome: Outcome, row: Row) -> list[tuple[int, str]]:
    """Pre-training seed and report of each run, seen from the comparison's folder."""
    seeds = [run.seed for run in outcome.runs[row.name] if run.seed is not None]
    return [(seed, f"{CELLS}/{row.name}/seed-{seed}/report.html") for seed in seeds]


@cache  # written again after every run
def _template() -> jinja2.Template:
    # The report's folder lends its style sheet.
    loaders = [jinja2.PackageLoader(f"endtask.{room}", "") for room in ("compare", "reporting")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,  # names and values are the user's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["in_words"] = shown.in_words
    return environment.get_template("compare.html.jinja")
