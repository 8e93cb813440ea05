"""The first screen of a report: the score with its interval, the baselines, a sentence of verdict, and a few facts."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from endtask.reporting import format as shown
from endtask.reporting.baselines import BaselineRow, baseline_rows, score_interval
from endtask.reporting.costs import corpus_text, stage_costs, total_cost
from endtask.reporting.plots_points import IntervalRow, interval_chart
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import metric_of, verdict_of

_ADVICE = "A larger --budget, more corpus text or a pre-trained checkpoint (--set model.path=...) may help."


@dataclass(frozen=True)
class Headline:
    """The score, its metric, the interval and the scored rows in words, and a chart with the baselines."""

    value: str
    metric: str
    interval: str
    rows: str
    chart: Markup | None


def headline_of(run: RunFolder) -> Headline | None:
    """Return the headline of an evaluated run; None before the evaluation."""
    if run.results is None:
        return None
    summary, seeds = run.results["summary"], len(run.results["seeds"])
    ends = score_interval(run)
    interval = f"95% interval {shown.score(ends[0])} to {shown.score(ends[1])}" if ends else ""
    spread = f"± {shown.score(summary['std'])} over {shown.plural(seeds, 'seed')}" if seeds > 1 else "one seed"
    return Headline(
        value=shown.score(summary["mean"]),
        metric=shown.metric_name(summary["metric"]),
        interval=f"{interval}, {spread}" if interval else spread,
        rows=f"on {shown.plural(run.results['rows'], 'row')} of {run.results['split']}",
        chart=_chart(run, ends),
    )


def _chart(run: RunFolder, ends: tuple[float, float] | None) -> Markup | None:
    """Return a chart of the score and the baselines; None without baselines."""
    rows = baseline_rows(run)
    if not rows or run.results is None:
        return None
    mean = run.results["summary"]["mean"]
    drawn = [IntervalRow("this model", mean, shown.score(mean), ends, style=0)]
    drawn += [IntervalRow(row.description, row.score, shown.score(row.score), style=5) for row in rows]
    name = shown.metric_name(metric_of(run))
    return interval_chart(drawn, title=f"The model and its baselines, {name}", x_label="", x_format=shown.score)


def verdict_sentence(run: RunFolder) -> str:
    """Return one sentence on what the score is worth: the comparison with the strongest baseline."""
    rows = baseline_rows(run)
    if run.results is None or not rows:
        return verdict_of(run)
    return _compared(rows[0])


def _compared(row: BaselineRow) -> str:
    """Return the comparison with a baseline as a sentence.

    >>> _compared(BaselineRow("tfidf", "TF-IDF", 0.392, 0.051, 0.01, 0.092, 0.004))
    'Clearly better than TF-IDF: +5.1 points [+1.0, +9.2], p = 0.004.'
    >>> _compared(BaselineRow("tfidf", "TF-IDF", 0.392, 0.051, -0.01, 0.092, 0.1))
    'Not clearly different from TF-IDF: +5.1 points [-1.0, +9.2], p = 0.1.'
    """
    if row.is_clear:
        words = "Clearly better than" if row.difference > 0 else "Clearly worse than"
    else:
        words = "Not clearly different from"
    points = f"{100 * row.difference:+.1f} points [{100 * row.low:+.1f}, {100 * row.high:+.1f}]"
    advice = f" {_ADVICE}" if row.difference <= 0 else ""
    return f"{words} {row.description}: {points}, p = {row.p_value:.2g}.{advice}"


def tiles_of(run: RunFolder) -> list[tuple[str, str]]:
    """Return the facts of a run that its readers ask for first, with their names."""
    costs = stage_costs(run)
    trained = [cost for cost in costs if cost.stage in ("pretrain", "finetune")]
    tiles = [("Labelled texts to learn from", shown.count(run.audit["splits"]["train"]["rows"]))] if run.audit else []
    corpus = run.counts("retrieve").get("corpus", {}).get("bytes")
    if "select" in run.manifests:
        selected = shown.size(corpus_text(run.counts("select")))
        tiles.append(("Corpus text selected", f"{selected} of {shown.size(corpus)}" if corpus else selected))
    if "parameters" in run.counts("pretrain"):
        tiles.append(("Parameters", shown.count(run.counts("pretrain")["parameters"])))
    if trained:
        tiles.append(("Training", shown.duration(sum(cost.seconds for cost in trained))))
        tiles.append(("All stages", shown.duration(total_cost(costs)["seconds"])))
    return tiles
