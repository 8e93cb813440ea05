"""The report of a few-shot experiment: tables, learning curves and verdicts, for the terminal and few-shot.html."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from endtask.experiments.few_shot.few_shot_scores import (
    PERPLEXITY,
    FewShotOutcome,
    FewShotResultTable,
    LabelScores,
)
from endtask.experiments.page import Page, Section, Table, print_tables, write_page
from endtask.experiments.statistics import Score
from endtask.reporting import format as shown
from endtask.reporting.plots import Series, line_chart

PAGE = "few-shot.html"


def verdict(outcome: FewShotOutcome, table: FewShotResultTable | None = None) -> str:
    """Return the first variant's score with the most labels, and which variants differ significantly from it."""
    first, *others = (table or outcome.tables[0]).rows
    entry, name = first.entries[-1], shown.metric_name(outcome.metric)
    score = score_in_words(entry, outcome.metric)
    sentence = f"{first.name}: {name} {score} with {shown.plural(entry.labels, 'label')}."
    different = []
    for row in others:
        difference = row.entries[-1].scores[outcome.metric].difference
        if difference is not None and difference.is_significant:
            different.append(f"{row.name} ({100 * difference.mean:+.1f} points, Holm's p = {difference.p_holm:.4f})")
    if not others:
        return sentence
    return f"{sentence} Clearly different: {', '.join(different)}." if different else f"{sentence} No clear difference."


def score_in_words(entry: LabelScores, metric: str) -> str:
    """Return a mean with its standard deviation, and an asterisk if it differs significantly from the first variant."""
    score = entry.scores[metric]
    star = "*" if score.difference is not None and score.difference.is_significant else ""
    return shown.metric_with_spread(metric, score.mean, score.std, entry.trials) + star


def notes(outcome: FewShotOutcome) -> list[str]:
    """Return the notes that a reader of the tables needs."""
    spec = outcome.spec
    draws = f"{spec.folds} folds" if spec.folds else shown.plural(spec.samples, "draw")
    note = (
        f"Mean ± standard deviation (in charts bars) over {draws} x {shown.plural(len(spec.seeds), 'seed')}, scored "
        f"on {outcome.scored}; epoch and learning rate are chosen by perplexity on held-out rows."
    )
    if any(len(table.rows) > 1 for table in outcome.tables):
        rows = "groups of rows, those of all folds together" if spec.folds else "groups of rows"
        note += (
            f" * differs from the first row (paired permutation test over {rows}; of perplexity, its logarithm; "
            "Holm's p < 0.05)."
        )
    return [*outcome.notes, note]


def metric_table(outcome: FewShotOutcome, table: FewShotResultTable, metric: str) -> Table:
    """Return a row for each variant with its score for each number of labels."""
    columns = [shown.metric_name(metric), *(shown.plural(labels, "label") for labels in table.labels)]
    rows = [[row.name, *(score_in_words(entry, metric) for entry in row.entries)] for row in table.rows]
    return Table(columns, rows, table.title)


def chart(table: FewShotResultTable, metric: str) -> Markup:
    """Return the learning curves: mean and standard deviation of each variant by the number of labels."""
    series = [
        Series(
            row.name,
            tuple((entry.labels, entry.scores[metric].mean) for entry in row.entries),
            tuple(_reach(entry.scores[metric]) for entry in row.entries),
        )
        for row in table.rows
    ]
    name = shown.metric_name(metric)
    return line_chart(
        series,
        title=f"{name} by the number of labels",
        x_label="labels",
        y_label=name,
        y_format=shown.score if metric != PERPLEXITY else lambda value: f"{value:.3g}",
    )


def _reach(score: Score) -> tuple[float, float]:
    return score.mean - score.std, score.mean + score.std


def print_few_shot(outcome: FewShotOutcome) -> None:
    """Print a table for each metric, notes and verdicts on standard output."""
    tables = [metric_table(outcome, table, metric) for table in outcome.tables for metric in outcome.metrics]
    print_tables(tables, [*notes(outcome), *(verdict(outcome, table) for table in outcome.tables)])


def write_few_shot_page(outcome: FewShotOutcome) -> Path:
    """Write few-shot.html. Return its path."""
    sections = []
    for table in outcome.tables:
        charts = [chart(table, metric) for metric in outcome.metrics] if len(table.labels) > 1 else []
        tables = [metric_table(outcome, table, metric) for metric in outcome.metrics]
        sections.append(Section(table.title or "Scores", charts, tables))
        rates = _learning_rates(outcome, table)
        if rates.rows:
            sections.append(Section("Learning rates", (), [rates]))
    page = Page("few-shot", outcome.task, verdict(outcome), notes(outcome), sections)
    return write_page(page, outcome.folder / PAGE)


def _learning_rates(outcome: FewShotOutcome, table: FewShotResultTable) -> Table:
    """Return the scores of each learning rate, for variants that tried several."""
    rows = [
        [
            row.name,
            str(entry.labels),
            shown.short(rate["learning_rate"]),
            shown.short(rate["held_out_perplexity"]),
            shown.score(rate[outcome.metric]),
        ]
        for row in table.rows
        for entry in row.entries
        for rate in entry.by_learning_rate
        if len(entry.by_learning_rate) > 1
    ]
    columns = ["Variant", "Labels", "Learning rate", "Held-out perplexity", shown.metric_name(outcome.metric)]
    return Table(columns, rows, "The learning rate with the lowest perplexity on held-out rows counts.")
