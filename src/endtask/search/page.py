"""search.html: the trials in a table and one picture of them, in a page that needs nothing beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from endtask.io.atomic import write_text
from endtask.reporting import format as shown
from endtask.reporting.plots import STYLES, BarGroup, Series, bar_chart, line_chart
from endtask.search.record import Record, Trial
from endtask.search.table import score_in_words, verdict

PAGE = "search.html"
_FILTERS = (shown.duration, shown.count, shown.flops, shown.metric_name, shown.short, score_in_words)


def write_page(record: Record) -> Path:
    """Write the page from the trials so far; returns its path."""
    page = _template().render(record=record, verdict=verdict(record), chart=chart(record), total=_total(record))
    write_text(record.folder / PAGE, page)
    return record.folder / PAGE


def chart(record: Record) -> Markup:
    """A grid of two keys as grouped bars; any other search as dev scores in the order of the trials."""
    space = record.asked["space"]
    if record.asked["kind"] == "grid" and len(space) == 2 and len(space[record.keys[1]]) <= STYLES:
        return _grid_chart(record, *record.keys)
    return _line_chart(record)


def _grid_chart(record: Record, across: str, inside: str) -> Markup:
    found = {(str(t.values[across]), str(t.values[inside])): t for t in record.finished}
    space = record.asked["space"]
    groups = []
    for value in space[across]:
        trials = [found.get((str(value), str(other))) for other in space[inside]]
        scores = tuple(trial.mean if trial else 0.0 for trial in trials)
        # The spread stands in the table; at the end of a bar there is no room for it.
        words = tuple((shown.score(trial.mean) if trial.dev else "failed") if trial else "not yet" for trial in trials)
        groups.append(BarGroup(f"{across} = {shown.short(value)}", scores, words))
    names = [f"{inside} = {shown.short(value)}" for value in space[inside]]
    return bar_chart(groups, names, title=f"{_metric(record)} on dev")


def _line_chart(record: Record) -> Markup:
    scored = [trial for trial in record.finished if trial.dev]
    best = [max(trial.mean for trial in scored[: place + 1]) for place in range(len(scored))]
    series = [
        Series("trial", tuple((trial.number + 1, trial.mean) for trial in scored)),
        Series("best so far", tuple((trial.number + 1, score) for trial, score in zip(scored, best, strict=True))),
    ]
    metric = _metric(record)
    return line_chart(series, title=f"{metric} on dev", x_label="trial", y_label=metric, y_format=shown.score)


def _metric(record: Record) -> str:
    return shown.metric_name(record.asked["metric"])


def _total(record: Record) -> Trial:
    """What all trials cost together."""
    trials = record.finished
    return Trial(
        len(trials),
        {},
        seconds=sum(trial.seconds for trial in trials),
        tokens=sum(trial.tokens for trial in trials),
        flops=sum(trial.flops for trial in trials),
    )


@cache  # written again after every trial
def _template() -> jinja2.Template:
    # The report's folder lends its style sheet.
    loaders = [jinja2.PackageLoader(f"endtask.{room}", "") for room in ("search", "reporting")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,  # keys and values are the user's
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({function.__name__: function for function in _FILTERS})
    return environment.get_template("search.html.jinja")
