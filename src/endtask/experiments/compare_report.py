"""The report of a comparison: tables, charts and verdicts, for the terminal and compare.html."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from endtask.experiments.comparison import ComparisonResult, ResultTable, TableRow
from endtask.experiments.page import Page, Section, Table, link, print_tables, write_page
from endtask.experiments.published_scores import published_scores
from endtask.experiments.statistics import ALPHA, Difference, Score
from endtask.experiments.trial_results import EvaluationSet
from endtask.experiments.variants import VARIANTS
from endtask.experiments.weight_curves import weight_charts
from endtask.reporting import format as shown
from endtask.reporting.plots_points import IntervalRow, LabelledPoint, interval_chart, point_chart

PAGE = "compare.html"
_EMPTY = ""
_MOST_NAMED = 12
_SIGNIFICANT = ("Clearly better", "Clearly worse")
_SIGNIFICANT_ONE_SEED = tuple(f"{word} on these rows (one seed: another may differ)" for word in ("Better", "Worse"))
_NOT_SIGNIFICANT = "No clear difference"
_VERDICTS = (*_SIGNIFICANT, *_SIGNIFICANT_ONE_SEED, _NOT_SIGNIFICANT)
_SCORES = (
    "The interval of a score is that of its mean over new rows and new seeds (bootstrap, 95%); p comes from a paired "
    "permutation test over rows, and Holm's p is corrected for all tests of the table; p (runs) permutes whole runs, "
    "as TARTAN does, where there are four or more. Rows of a group, such as rows with the same text, are drawn and "
    "permuted together."
)
_COSTS = (
    "Of a run with all its fine-tuning seeds, as if no stage had been reused. Training is pre-training and "
    "fine-tuning. FLOPs are the exact sum over all matrix products, and 6 × parameters × tokens."
)
_PAPER_STYLE = 2
_PAPERS = (
    "Hollow dots are models of the TLM and ISS papers on the test set with this number of rows and labels, as "
    "published: larger models, other corpora, and the FLOPs of their pre-training alone."
)


def verdict(result: ComparisonResult, table: ResultTable | None = None) -> str:
    """Return the score of the reference variant, and which other variants are better or worse."""
    table, rows = table or result.tables[0], result.evaluation
    reference = table.reference
    if reference.score is None:
        return f"{reference.title} has no score yet."
    where = f"{rows.split} ({rows_in_words(rows)}, {shown.plural(reference.models, 'model')})"
    metric = shown.metric_name(rows.metric)
    sentence = f"{reference.title}: {metric} {score_in_words(reference, reference.score)} on {where}."
    groups: dict[str, list[str]] = {words: [] for words in _VERDICTS}
    for row in table.rows:
        if row.score is not None and (difference := row.score.difference) is not None:
            words = _difference_in_words(difference, one_seed=result.has_one_seed(table, row.name))
            groups[words].append(_named(row.title, difference))
    return " ".join([sentence, *(f"{words}: {', '.join(names)}." for words, names in groups.items() if names)])


def _difference_in_words(difference: Difference, *, one_seed: bool) -> str:
    """Return the verdict; with one seed it warns that test and interval do not cover other seeds.

    >>> _difference_in_words(Difference(0.02, 0.001, 0.004, 0.01, 0.03), one_seed=False)
    'Clearly better'
    """
    if not difference.is_significant:
        return _NOT_SIGNIFICANT
    words = _SIGNIFICANT_ONE_SEED if one_seed else _SIGNIFICANT
    return words[0] if difference.mean > 0 else words[1]


def _named(title: str, difference: Difference) -> str:
    words = f"{100 * difference.mean:+.1f} points, Holm's p = {p_in_words(difference.p_holm)}"
    unsure = difference.p_holm < ALPHA and not difference.is_significant
    return f"{title} ({words}{f', but {interval_in_words(difference)} over other seeds' if unsure else ''})"


def rows_in_words(rows: EvaluationSet) -> str:
    """Return the number of scored rows, and of groups if some rows share a group."""
    count = shown.plural(len(rows.ids), "row")
    return count if rows.group_count == len(rows.ids) else f"{count} in {shown.plural(rows.group_count, 'group')}"


def notes(result: ComparisonResult) -> list[str]:
    """Return the notes that a reader of the tables needs."""
    if result.evaluation.split == "test":
        lines = ["Choose settings on dev: the best test score of many is partly chance."]
    else:
        lines = ["Scores are those of dev, which also chose the epoch, so they are somewhat too high."]
    lines.append(f"± is the standard deviation over all models of a variant{_seeds_in_words(result)}.")
    if not result.is_tested:
        lines.append("Not finished yet: intervals and tests come at the end.")
    return lines + leak_notes(result) + tokenizer_notes(result) + missing_notes(result)


def tokenizer_notes(result: ComparisonResult) -> list[str]:
    """Return a note on variants that learned another tokenizer than the reference, if any."""
    reference = result.row(result.against).tokenizer
    if reference is None:
        return []
    others = [row.title for row in _all_rows(result) if row.tokenizer not in (None, reference)]
    if not others:
        return []
    return [
        f"Another tokenizer than {result.against}, learned from other texts: {', '.join(others)}; "
        "tokenizer.path gives all variants the same one."
    ]


def missing_notes(result: ComparisonResult) -> list[str]:
    """Return notes on trials that are not finished and on variants with other finished seeds, if any."""
    if not result.missing:
        return []
    more = len(result.missing) - _MOST_NAMED
    names = ", ".join(result.missing[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    lines, uneven = [f"Not finished and not counted: {names}."], _with_other_seeds(result)
    if result.is_tested and uneven:
        lines.append(
            f"Other seeds are finished than of {result.against}: {', '.join(uneven)}. All finished ones count; the "
            "intervals of these differences resample the seeds of both sides independently."
        )
    return lines


def _with_other_seeds(result: ComparisonResult) -> list[str]:
    """Return the trained variants with other finished seeds than the reference, if trials of either are missing."""
    unfinished = {key.partition("/")[0] for key in result.missing}
    finished = {name: {trial.seed for trial in trials} for name, trials in result.trials.items() if trials}
    reference = finished.pop(result.against, None)
    if reference is None:
        return []
    return [
        name
        for name, seeds in finished.items()
        if None not in seeds and seeds != reference and unfinished & {name, result.against}
    ]


def leak_notes(result: ComparisonResult) -> list[str]:
    """Return a note on scored rows that are in train too, if any."""
    evaluation = result.evaluation
    rows, clean = len(evaluation.ids), int(evaluation.leak_free.sum())
    if not clean:
        return [f"All {rows:,} rows of {evaluation.split} are in train too: the scores say nothing about new texts."]
    if clean == rows:
        return []
    leaked = f"{rows - clean:,} of the {rows:,} rows of {evaluation.split}"
    return [f"{leaked} are in train too; the leak-free score is that of the others."]


def _seeds_in_words(result: ComparisonResult) -> str:
    """Return how many times the trained variants were pre-trained."""
    counts = {sum(trial.seed is not None for trial in trials) for trials in result.trials.values()} - {0}
    if not counts:
        return ""
    fewest, most = min(counts), max(counts)
    if most == 1:
        return "; each variant was pre-trained once, so it leaves out the chance of that seed"
    if fewest == most:
        return f"; each variant was pre-trained {most} times"
    once = ", and with one time it leaves out the chance of that seed" if fewest == 1 else ""
    return f"; variants were pre-trained {fewest} to {most} times{once}"


def score_in_words(row: TableRow, score: Score | None) -> str:
    """Return a mean with its standard deviation over the row's models."""
    if score is None:
        return ("failed" if row.failures else "not yet") if row.score is None else _EMPTY
    return shown.score_with_spread(score.mean, score.std, row.models)


def interval_in_words(ends: Score | Difference | None) -> str:
    """Return the ends of an interval in points.

    >>> interval_in_words(Score(0.5, 0.0, 0.481, 0.52))
    '48.1 to 52.0'
    """
    if ends is None or ends.low is None or ends.high is None:
        return _EMPTY
    sign = "+" if isinstance(ends, Difference) else ""
    return f"{100 * ends.low:{sign}.1f} to {100 * ends.high:{sign}.1f}"


def p_in_words(p_value: float) -> str:
    """Return a p-value with four decimals, as 10,000 permutations give.

    >>> p_in_words(0.00009999), p_in_words(0.0312)
    ('0.0001', '0.0312')
    """
    return f"{p_value:.4f}"


def score_table(result: ComparisonResult, table: ResultTable, caption: str = "") -> Table:
    """Return the table of scores, differences and tests."""
    rows, metric = result.evaluation, shown.metric_name(result.evaluation.metric)
    leak_free = ["leak-free", "its p (Holm)"] if rows.has_leaks else []
    dev = ["dev"] if rows.split != "dev" else []
    tests = [
        f"against {table.reference.title}",
        "95%",
        "p",
        "p (Holm)",
        *(["p (runs)"] if _has_p_of_runs(table) else []),
    ]
    columns = ["variant", "models", f"{metric} on {rows.split}", "95%", *dev, *tests, *leak_free]
    cells = [_score_cells(result, row, _has_p_of_runs(table)) for row in table.rows]
    return Table(columns, cells, caption, _reference_index(table))


def _has_p_of_runs(table: ResultTable) -> bool:
    """Return whether some difference was also tested over runs."""
    differences = [row.score.difference for row in table.rows if row.score is not None]
    return any(difference is not None and difference.p_runs is not None for difference in differences)


def _score_cells(result: ComparisonResult, row: TableRow, p_of_runs: bool) -> list[str]:
    rows, score = result.evaluation, row.score
    difference = score.difference if score is not None else None
    cells = [row.title, str(row.models or _EMPTY), score_in_words(row, score), interval_in_words(score)]
    if rows.split != "dev":
        cells.append(score_in_words(row, row.dev) if row.dev else _EMPTY)
    points = f"{100 * difference.mean:+.1f}" if difference is not None else _EMPTY
    cells += [points, interval_in_words(difference), *_p_values(difference)]
    if p_of_runs:
        p_runs = difference.p_runs if difference is not None else None
        cells.append(_EMPTY if p_runs is None else p_in_words(p_runs))
    if rows.has_leaks:
        leak_free = row.leak_free.difference if row.leak_free is not None else None
        cells += [score_in_words(row, row.leak_free) if row.leak_free else _EMPTY, _p_values(leak_free)[1]]
    return cells


def _p_values(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return _EMPTY, _EMPTY
    return p_in_words(difference.p_value), p_in_words(difference.p_holm)


def cost_table(table: ResultTable, caption: str = "") -> Table:
    """Return the table of the costs of a run, as if no stage had been reused."""
    columns = ["variant", "parameters", "FLOPs", "FLOPs (6ND)", "training", "all stages", "corpus text"]
    return Table(columns, [_cost_cells(row, len(columns)) for row in table.rows], caption, _reference_index(table))


def _cost_cells(row: TableRow, columns: int) -> list[str]:
    cost = row.cost
    if cost is None:
        return [row.title, *[_EMPTY] * (columns - 1)]
    trained = cost.parameters is not None
    return [
        row.title,
        shown.count(cost.parameters) if cost.parameters is not None else _EMPTY,
        shown.flops(cost.matmul_flops) if trained else _EMPTY,
        shown.flops(cost.flops) if trained else _EMPTY,
        shown.duration(cost.train_seconds),
        shown.duration(cost.seconds),
        shown.size(cost.text_bytes) if cost.text_bytes else "none",
    ]


def _reference_index(table: ResultTable) -> frozenset[int]:
    return frozenset(index for index, row in enumerate(table.rows) if row.name == table.against)


def print_comparison(result: ComparisonResult) -> None:
    """Print scores, costs, notes and the verdict of every table."""
    tables = []
    for table in result.tables:
        tables += [score_table(result, table, table.title), cost_table(table)]
    baselines = [f"{row.title}: {row.note}" for row in _all_rows(result) if row.note]
    leaks = leak_notes(result) if not result.evaluation.leak_free.any() else []
    verdicts = [verdict(result, table) for table in result.tables]
    print_tables(tables, [*baselines, *leaks, *tokenizer_notes(result), *missing_notes(result), *verdicts])


def _all_rows(result: ComparisonResult) -> list[TableRow]:
    """Return the rows of all tables, each variant once."""
    return list({row.name: row for table in result.tables for row in table.rows}.values())


def write_comparison_page(result: ComparisonResult) -> Path:
    """Write compare.html from the trials so far. Return its path."""
    sections = [
        Section(
            table.title or "Variants",
            charts(result, table),
            [score_table(result, table, _SCORES), cost_table(table, _COSTS)],
            [_PAPERS] if published_scores(result.evaluation) else [],
        )
        for table in result.tables
    ]
    rows = _all_rows(result)
    failures = [f"{row.title} failed: {failure}" for row in rows for failure in row.failures]
    settings = Table(
        ["Variant", "Differs in", "Runs"],
        [[row.title, _changes_in_words(row), _report_links(result, row)] for row in rows],
        text_columns=frozenset((1, 2)),
    )
    sections.append(Section("Settings", (), [settings], failures))
    page = Page("compare", result.folder.name, verdict(result), notes(result), sections)
    return write_page(page, result.folder / PAGE)


def charts(result: ComparisonResult, table: ResultTable) -> list[Markup]:
    """Return a chart of the scores with their intervals, one of score against cost, and those of learned weights."""
    first = [chart for chart in (score_chart(result, table), cost_chart(result, table)) if chart is not None]
    return [*first, *weight_charts(result, table)]


def score_chart(result: ComparisonResult, table: ResultTable) -> Markup | None:
    """Return a chart of the mean score of each variant with its interval; None before the first score."""
    drawn = [
        IntervalRow(row.title, row.score.mean, shown.score(row.score.mean), _interval(row.score), _style(table, row))
        for row in table.rows
        if row.score is not None
    ]
    rows = result.evaluation
    title = f"{shown.metric_name(rows.metric)} on {rows.split}"
    return interval_chart(drawn, title=title, x_label="", x_format=shown.score) if drawn else None


def _style(table: ResultTable, row: TableRow) -> int:
    """Return the number of a colour: one for the reference, one for the other variants, one for baselines."""
    return 0 if row.name == table.against else 5 if row.is_baseline else 1


def cost_chart(result: ComparisonResult, table: ResultTable) -> Markup | None:
    """Return a chart of score against FLOPs, with the papers' models on their tasks; None if nothing was trained."""
    rows = result.evaluation
    points = [
        LabelledPoint(row.title, row.cost.flops, row.score.mean, _interval(row.score), style=_style(table, row))
        for row in table.rows
        if row.score is not None and row.cost is not None and row.cost.flops > 0
    ]
    if not points:
        return None
    points += [
        LabelledPoint(paper.model, paper.flops, paper.score, filled=False, style=_PAPER_STYLE)
        for paper in published_scores(rows)
    ]
    return point_chart(
        points,
        title="Score against cost",
        x_label="FLOPs of training (6 × parameters × tokens)",
        y_label=f"{shown.metric_name(rows.metric)} on {rows.split}",
        x_format=shown.flops,
        y_format=shown.score,
    )


def _interval(score: Score) -> tuple[float, float] | None:
    return None if score.low is None or score.high is None else (score.low, score.high)


def _changes_in_words(row: TableRow) -> str:
    return "; ".join(part for part in (row.note, shown.in_words(row.changes)) if part) or "the settings as given"


def _report_links(result: ComparisonResult, row: TableRow) -> Markup:
    seeds = [trial.seed for trial in result.trials[row.name] if trial.seed is not None]
    return Markup(" ").join(link(f"{VARIANTS}/{row.name}/seed-{seed}/report.html", f"seed {seed}") for seed in seeds)
