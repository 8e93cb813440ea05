"""The report of a search: a table, a chart and a verdict, for the terminal and search.html."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from endtask.experiments.page import Page, Section, Table, link, print_tables, write_page
from endtask.experiments.search_result import SearchResult, SearchTrial
from endtask.reporting import format as shown
from endtask.reporting.plots import BarGroup, Series, bar_chart, line_chart
from endtask.reporting.svg import STYLES

PAGE = "search.html"
_NOTE = (
    "Trials are compared on dev; ± is the standard deviation over fine-tuning seeds. The best of many dev scores is "
    "somewhat too high, and only the winner was scored on test."
)


def score_in_words(trial: SearchTrial) -> str:
    """Return the dev score with its standard deviation over the seeds, or why the trial has no score."""
    if trial.failure is not None:
        return "failed"
    return shown.score_with_spread(trial.mean, trial.std, len(trial.dev)) if trial.dev else "not finished"


def verdict(result: SearchResult) -> str:
    """Return a sentence on the best trial, with the winner's test score if it is known."""
    best, spec = result.best, result.spec
    if best is None:
        return "No trial has been scored yet."
    metric = shown.metric_name(spec["metric"])
    done = f"{len(result.finished)} of {shown.plural(spec['trial_count'], 'trial')}"
    sentence = f"Best of {done}: {shown.in_words(best.values)}, {metric} {score_in_words(best)} on dev"
    winner = result.winner
    # Without a test split a run is evaluated on dev, which is in the sentence already.
    if winner is None or winner["split"] == "dev":
        return f"{sentence}."
    score = shown.score_with_spread(winner["mean"], winner["std"], len(best.dev))
    return f"{sentence}, {score} on {winner['split']} ({shown.plural(winner['rows'], 'row')})."


def trial_table(result: SearchResult) -> Table:
    """Return the table of all trials, with the best trial highlighted."""
    columns = ["trial", *result.keys, "dev", "time", "tokens", "FLOPs"]
    best = frozenset(trial.number for trial in result.trials if trial == result.best)
    return Table(columns, [_cells(trial, result.keys) for trial in result.trials], highlighted=best)


def _cells(trial: SearchTrial, keys: tuple[str, ...]) -> list[str]:
    values = [shown.short(trial.values[key]) for key in keys]
    cost = [shown.duration(trial.seconds), shown.count(trial.tokens), shown.flops(trial.flops)]
    return [str(trial.number + 1), *values, score_in_words(trial), *cost]


def print_search(result: SearchResult) -> None:
    """Print the trials and the verdict on standard output."""
    print_tables([trial_table(result)], [verdict(result)])


def write_search_page(result: SearchResult) -> Path:
    """Write search.html from the trials so far. Return its path."""
    table, spec = trial_table(result), result.spec
    linked = [
        [link(f"{trial.folder}/report.html", str(cells[0])), *cells[1:]]
        for trial, cells in zip(result.trials, table.rows, strict=True)
    ]
    total = _cells(_total(result), ())
    caption = (
        f"Budget: {spec['budget']} for {spec['trial_count']} trials, {spec['budget_per_trial']} each. Times and FLOPs "
        "are without reused stages: a stage that several trials have in common runs once, in the first of them."
    )
    rows = [*linked, ["total", *[""] * len(result.keys), "", *total[2:]]]
    failures = [f"Trial {trial.number + 1} failed: {trial.failure}" for trial in result.trials if trial.failure]
    section = Section("Trials", [chart(result)], [Table(table.columns, rows, caption, table.highlighted)], failures)
    page = Page("search", result.folder.name, verdict(result), [_NOTE], [section])
    return write_page(page, result.folder / PAGE)


def chart(result: SearchResult) -> Markup:
    """Return grouped bars for a grid of two keys, else the dev scores in the order of the trials."""
    space = result.spec["space"]
    if result.spec["strategy"] == "grid" and len(space) == 2 and len(space[result.keys[1]]) <= STYLES:
        return _grid_chart(result, *result.keys)
    return _line_chart(result)


def _grid_chart(result: SearchResult, outer: str, inner: str) -> Markup:
    by_values = {(str(trial.values[outer]), str(trial.values[inner])): trial for trial in result.finished}
    space = result.spec["space"]
    groups = []
    for value in space[outer]:
        trials = [by_values.get((str(value), str(inner_value))) for inner_value in space[inner]]
        scores = tuple(trial.mean if trial else 0.0 for trial in trials)
        # The standard deviation, which is in the table, does not fit at the end of a bar.
        words = tuple((shown.score(trial.mean) if trial.dev else "failed") if trial else "not yet" for trial in trials)
        groups.append(BarGroup(f"{outer} = {shown.short(value)}", scores, words))
    names = [f"{inner} = {shown.short(value)}" for value in space[inner]]
    return bar_chart(groups, names, title=f"{_metric(result)} on dev")


def _line_chart(result: SearchResult) -> Markup:
    scored = [trial for trial in result.finished if trial.dev]
    best = [max(trial.mean for trial in scored[: index + 1]) for index in range(len(scored))]
    series = [
        Series("trial", tuple((trial.number + 1, trial.mean) for trial in scored)),
        Series("best so far", tuple((trial.number + 1, score) for trial, score in zip(scored, best, strict=True))),
    ]
    metric = _metric(result)
    return line_chart(series, title=f"{metric} on dev", x_label="trial", y_label=metric, y_format=shown.score)


def _metric(result: SearchResult) -> str:
    return shown.metric_name(result.spec["metric"])


def _total(result: SearchResult) -> SearchTrial:
    """Return a trial with the cost of all finished trials together."""
    trials = result.finished
    return SearchTrial(
        len(trials),
        {},
        seconds=sum(trial.seconds for trial in trials),
        tokens=sum(trial.tokens for trial in trials),
        flops=sum(trial.flops for trial in trials),
    )
