"""The trials as a table for the terminal, and the search in a sentence."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from endtask.reporting import format as shown
from endtask.search.record import Record, Trial

_WIDTH_OF_A_FILE = 200


def score_in_words(trial: Trial) -> str:
    """The dev score with its spread over the seeds, or that there is none."""
    if trial.failure is not None:
        return "failed"
    return shown.score_with_spread(trial.mean, trial.spread, len(trial.dev)) if trial.dev else "not finished"


def verdict(record: Record) -> str:
    """One sentence on how the search came out; test is spoken of for the winner alone."""
    best, asked = record.best, record.asked
    if best is None:
        return "No trial has been scored yet."
    metric = shown.metric_name(asked["metric"])
    done = f"{len(record.finished)} of {shown.plural(asked['trials_asked'], 'trial')}"
    sentence = f"Best of {done}: {shown.in_words(best.values)}, {metric} {score_in_words(best)} on dev"
    winner = record.winner
    # Without a test split a run is evaluated on dev, which says nothing new here.
    if winner is None or winner["split"] == "dev":
        return f"{sentence}."
    score = shown.score_with_spread(winner["mean"], winner["std"], len(best.dev))
    return f"{sentence}, {score} on {winner['split']} ({shown.plural(winner['rows'], 'row')})."


def print_table(record: Record) -> None:
    """Print the trials on standard output, the best one marked."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=_WIDTH_OF_A_FILE)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("trial", justify="right")
    for key in record.keys:
        table.add_column(key, justify="right")
    for name in ("dev", "time", "tokens", "FLOPs"):
        table.add_column(name, justify="right")
    for trial in record.trials:
        table.add_row(*_cells(trial, record.keys), style="bold" if trial == record.best else "")
    console.print(table)


def _cells(trial: Trial, keys: tuple[str, ...]) -> list[str]:
    cost = [shown.duration(trial.seconds), shown.count(trial.tokens), shown.flops(trial.flops)]
    return [str(trial.number + 1), *(shown.short(trial.values[key]) for key in keys), score_in_words(trial), *cost]
