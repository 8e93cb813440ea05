"""few-examples.html: learning curves and tables in a page that needs nothing beside it; the same for the terminal."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table

from endtask.few_examples.outcome import PERPLEXITY, Cell, Outcome
from endtask.io.atomic import write_text
from endtask.reporting import format as shown
from endtask.reporting.plots import Series, line_chart

PAGE = "few-examples.html"
_WIDTH_OF_A_FILE = 200


def write_page(outcome: Outcome) -> Path:
    """Write the page; returns its path."""
    page = _template().render(
        outcome=outcome,
        verdict=verdict(outcome),
        notes=[*outcome.notes, marks_in_words(outcome)],
        charts=[chart(outcome, metric) for metric in outcome.metrics],
        tables=[(shown.metric_name(metric), table(outcome, metric)) for metric in outcome.metrics],
        rates=_rates(outcome),
    )
    write_text(outcome.folder / PAGE, page)
    return outcome.folder / PAGE


def chart(outcome: Outcome, metric: str) -> Markup:
    """The learning curve: the mean of each arm by the number of labels."""
    series = [
        Series(row.name, tuple((cell.labels, cell.scores[metric]["mean"]) for cell in row.cells))
        for row in outcome.rows
    ]
    name = shown.metric_name(metric)
    in_points = metric != PERPLEXITY
    return line_chart(
        series,
        title=f"{name} by the number of labels",
        x_label="labels",
        y_label=name,
        y_format=shown.score if in_points else lambda value: f"{value:.3g}",
    )


def table(outcome: Outcome, metric: str) -> list[list[str]]:
    """A line for each arm: its name, then mean, spread and mark for each number of labels."""
    return [[row.name, *(in_words(cell, metric) for cell in row.cells)] for row in outcome.rows]


def in_words(cell: Cell, metric: str) -> str:
    """A mean with its spread; an asterisk where it differs from the first arm by more than chance."""
    score = cell.scores[metric]
    mark = "*" if metric in cell.tests and cell.tests[metric].is_clear else ""
    return shown.metric_with_spread(metric, score["mean"], score["std"], cell.runs) + mark


def verdict(outcome: Outcome) -> str:
    """How the first arm does with the most labels, and which others clearly differ there."""
    first, *others = outcome.rows
    cell, name = first.cells[-1], shown.metric_name(outcome.metric)
    sentence = f"{first.name}: {name} {in_words(cell, outcome.metric)} with {shown.plural(cell.labels, 'label')}."
    clear = []
    for row in others:
        test = row.cells[-1].tests[outcome.metric]
        if test.is_clear:
            clear.append(f"{row.name} ({100 * test.lead:+.1f} points, Holm's p = {test.p_holm:.4f})")
    if not others:
        return sentence
    return f"{sentence} Clearly different: {', '.join(clear)}." if clear else f"{sentence} No clear difference."


def marks_in_words(outcome: Outcome) -> str:
    """What the table's numbers and marks mean."""
    plan = outcome.plan
    draws = f"{plan.folds} folds" if plan.folds else shown.plural(plan.samples, "draw")
    rows = "groups of rows, those of all folds together" if plan.folds else "groups of rows"
    tested = (
        f" * differs from {outcome.rows[0].name} (paired permutation test over {rows}; of perplexity, its logarithm; "
        "Holm's p < 0.05)."
    )
    return (
        f"Mean ± spread over {draws} x {shown.plural(len(plan.seeds), 'seed')}, scored on {outcome.scored}; "
        f"epoch and rate were chosen by perplexity on held-out rows.{tested if len(outcome.rows) > 1 else ''}"
    )


def print_tables(outcome: Outcome) -> None:
    """Print a table for each metric on standard output."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH_OF_A_FILE)
    for metric in outcome.metrics:
        drawn = Table(box=box.SIMPLE_HEAD)
        drawn.add_column(shown.metric_name(metric))
        for labels in outcome.labels:
            drawn.add_column(shown.plural(labels, "label"), justify="right")
        for cells in table(outcome, metric):
            drawn.add_row(*cells)
        console.print(drawn)
    for note in [*outcome.notes, marks_in_words(outcome)]:
        console.print(note, markup=False, soft_wrap=True)


def _rates(outcome: Outcome) -> list[tuple[str, int, dict[str, float]]]:
    """What each learning rate came to, where several were tried."""
    return [
        (row.name, cell.labels, rate)
        for row in outcome.rows
        for cell in row.cells
        for rate in cell.rates
        if len(cell.rates) > 1
    ]


@cache
def _template() -> jinja2.Template:
    # The report's folder lends its style sheet.
    loaders = [jinja2.PackageLoader(f"endtask.{room}", "") for room in ("few_examples", "reporting")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,  # names are the user's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (shown.metric_name, shown.short, shown.score):
        environment.filters[function.__name__] = function
    return environment.get_template("few_examples.html.jinja")
