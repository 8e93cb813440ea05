"""The twelve tasks: random weights with a selection beside endtask-mini, a small pretrained encoder and TF-IDF."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from benchmarks.results_file import Results, read_results
from endtask.experiments.published_scores import scores_on
from endtask.reporting import format as shown
from endtask.reporting.plots_points import LabelledPoint, point_chart
from endtask.reporting.svg import picture
from studies.pages.question import verdicts
from studies.pages.task_lines import task_lines
from studies.tables import TASKS, gpu_of, markdown, select

Row = dict[str, Any]
LONG = "long"
TITLES = {LONG: "gpu-long", "mini": "endtask-mini", "small": "a small pretrained encoder", "tfidf": "TF-IDF"}
_PAPER_TASKS = ("agnews", "hyperpartisan", "citation_intent", "sciie", "chemprot")
TLM_SMALL = {
    task: next(paper.score for paper in scores_on(task) if paper.model == "TLM small") for task in _PAPER_TASKS
} | {"imdb": 0.9308}
"""TLM, small scale: Yao et al. (2021), Table 2, with three seeds."""
OTHER_DATA = {
    "agnews": "15% of the train rows",
    "hyperpartisan": "another split: the paper's test rows are in its train rows",
}
"""Why a score stands beside no paper's."""


def summary_by_task(rows: list[Row]) -> dict[str, Any]:
    """Return the headline figures of every measured task, as shares of 1; None for what was not measured."""
    tasks = [task for task in TASKS if select(rows, kind="run", task=task, variant=LONG)]
    return {task: _figures(task, select(rows, kind="run", task=task)) for task in tasks}


def twelve_tasks_section(results: Results) -> str:
    """Return the verdicts over all tasks, and a line for each task."""
    rows: list[Row] = [dict(row) for row in results.rows]
    others = [name for name in TITLES if name != LONG and select(rows, variant=name)]
    variants, pairs = [LONG, *others], [(LONG, other) for other in others]
    heads = ["task", "metric", *(TITLES[name] for name in variants), *(f"over {TITLES[name]}" for name in others)]
    tasks = [task for task in TASKS if select(rows, task=task)]
    lines = [[*line, _published(task)] for task, line in zip(tasks, task_lines(rows, variants, pairs), strict=True)]
    note = (
        "In points; brackets: without test rows that are in train. Differences with 95% intervals over rows and seeds, or p; where "
        "there are leaks, of the leak-free rows"
    )
    if other_data := [task for task in OTHER_DATA if task in tasks]:
        note += ". * not comparable: " + "; ".join(f"{TASKS[task]} has {OTHER_DATA[task]}" for task in other_data)
    made = f"{note}. {gpu_of(rows)}, {results.date}; `{results.command}`."
    table = markdown([*heads, "TLM-small"], lines, left=2)
    return "\n".join([*verdicts("tasks", rows), "", *table, "", made, ""])


def tasks_picture(results: Results) -> str:
    """Return scores against FLOPs on the papers' tasks that were measured at both lengths, with the papers' models."""
    rows = [*results.rows, *select(read_results("recipe").rows, table="final")]
    tasks = [task for task in PICTURED if select(results.rows, kind="run", task=task, variant=LONG)]
    return picture(
        "Test score against FLOPs of pre-training: ours from random weights, and the papers' models",
        [_chart(task, select(rows, task=task)) for task in tasks],
        columns=2,
    )


PICTURED = ("chemprot", "sciie")
_PAPER_STYLE = 3


def _chart(task: str, rows: list[Row]) -> Any:
    rungs = {"gpu": select(rows, kind="run", cell="recipe"), "gpu-long": select(rows, kind="run", variant=LONG)}
    metric = next(row["metric"] for row in rows if row["kind"] == "cell")
    points = [
        LabelledPoint(name, fmean(run["cost"]["flops"] for run in found), fmean(_scores(found, "test")))
        for name, found in rungs.items()
        if found
    ]
    papers = [
        LabelledPoint(one.model, one.flops, one.score, filled=False, style=_PAPER_STYLE) for one in scores_on(task)
    ]
    return point_chart(
        [*points, *papers],
        title=TASKS[task],
        x_label="FLOPs of pre-training (6 x parameters x tokens)",
        y_label=f"test {shown.metric_name(metric)}",
        x_format=shown.flops,
        y_format=shown.score,
    )


def _figures(task: str, runs: list[Row]) -> dict[str, Any]:
    own = select(runs, variant=LONG)
    scores, clean = _scores(own, "test"), _scores(own, "leak_free")
    return {
        "test_mean": _mean(scores),
        "test_std": round(stdev(scores), 5) if len(scores) > 1 else None,
        "clean_test_mean": _mean(clean or scores),
        "dev_mean": _mean(_scores(own, "dev")),
        "minutes": round(fmean(run["cost"]["train_seconds"] for run in own) / 60, 2),
        "flops": fmean(run["cost"]["matmul_flops"] for run in own),
        "seeds": len(own),
        "models": len(scores),
        **{key: _mean(_scores(select(runs, variant=name), "test")) for key, name in _BESIDE.items()},
        "paper_tlm_small": TLM_SMALL.get(task),
        "comparable": task in TLM_SMALL and task not in OTHER_DATA,
    }


_BESIDE = {"tfidf": "tfidf", "pretrained_small": "small", "warm": "mini"}


def _scores(runs: list[Row], part: str) -> list[float]:
    return [score for run in runs for score in run[part]]


def _mean(scores: list[float]) -> float | None:
    return round(fmean(scores), 5) if scores else None


def _published(task: str) -> str:
    if task not in TLM_SMALL:
        return ""
    return f"{100 * TLM_SMALL[task]:.1f}" + ("*" if task in OTHER_DATA else "")
