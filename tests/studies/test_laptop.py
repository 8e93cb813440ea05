"""The section of the laptop study: a line for each task, with empty cells for what is not measured."""

from __future__ import annotations

from typing import Any

from endtask.reporting.format import metric_name
from studies.pages.task_lines import task_lines

Row = dict[str, Any]
VARIANTS, PAIRS = ["tfidf", "two", "ten"], [("two", "tfidf"), ("ten", "tfidf")]


def run(task: str, variant: str, score: float, leak_free: float | None = None) -> Row:
    clean = score if leak_free is None else leak_free
    return {"kind": "run", "task": task, "variant": variant, "test": [score], "leak_free": [clean]}


def cell(task: str, metric: str) -> Row:
    return {"kind": "cell", "task": task, "metric": metric, "cell": "two"}


def pair(task: str, better: str, **values: Any) -> Row:
    return {"kind": "pair", "task": task, "cell": better, "over": "tfidf", **values}


def test_a_line_for_each_task_in_the_order_of_pages() -> None:
    rows = [
        cell("imdb", "macro_f1"),
        run("imdb", "two", 0.8),
        run("imdb", "tfidf", 0.9, leak_free=0.875),
        pair("imdb", "two", lead=-0.1, interval=[-0.12, -0.08], leak_free_lead=-0.075, leak_free_p=0.0001),
        cell("sciie", "macro_f1"),
        run("sciie", "ten", 0.7),
        run("sciie", "two", 0.6),
        pair("sciie", "ten", lead=0.2, interval=[0.1, 0.3]),
    ]
    metric = metric_name("macro_f1")
    assert task_lines(rows, VARIANTS, PAIRS) == [
        ["SciERC", metric, "", "60.0", "70.0", "", "+20.0 [+10.0, +30.0]"],
        ["IMDB", metric, "90.0 (87.5)", "80.0", "", "-7.5 (p 0.000)", ""],
    ]
