"""The facts of endtask-mini's training, for its model card."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.results_file import Results
from studies.pages.task_lines import task_lines
from studies.tables import TASKS, gpu_of, markdown, select

Row = dict[str, Any]
MINI = "mini"
TITLES = {MINI: "endtask-mini", "random": "random weights", "small": "a small pretrained encoder", "tfidf": "TF-IDF"}
"""The variants of the study `tasks-finetune`, in the order of the columns."""


def endtask_mini_facts(results: Results) -> str:
    """Return the table of data, cost and size."""
    rows: list[Row] = [dict(row) for row in results.rows]
    (data,), (model,) = select(rows, kind="data"), select(rows, kind="model")
    calls = select(rows, kind="call")
    last, seconds = calls[-1], sum(call["seconds"] for call in calls)
    source = f" ({last['source']})" if "source" in last else ""
    dropped = f"{data['contaminated']:,} of {data['passages_read']:,} passages dropped"
    lines = [
        ["parameters", f"{model['parameters'] / 1e6:.2f} million; {model['megabytes']:.2f} MB in half precision"],
        ["vocabulary", f"{data['vocabulary']:,} tokens, WordPiece"],
        ["text", f"{data['train']['passages']:,} passages, {data['train']['tokens'] / 1e6:.0f} million tokens"],
        ["without test texts", f"{dropped}: they hold one of {data['evaluation_texts']:,} dev and test texts"],
        [
            "training",
            f"{last['step']:,} steps of {last['batch']}, {last['tokens']:.2e} tokens in all, peak rate {last['learning_rate']:g}",
        ],
        [
            "cost",
            f"{last['matmul_flops']:.1e} FLOPs of matrix products, {seconds / 60:.0f} minutes of one {last['device']}{source}",
        ],
        ["masked-LM loss", f"{model['held_out_loss']:.3f} on {data['held_out']['passages']:,} held-out passages"],
    ]
    return "\n".join([*markdown(["", ""], lines, left=2), "", f"`{results.command}`, {results.date}.", ""])


def tasks_finetune_table(results: Results) -> str:
    """Return a line for each task: the score of each variant that ran, and the lead of endtask-mini over the others."""
    rows: list[Row] = [dict(row) for row in results.rows]
    variants, others = _columns(rows), [name for name in _columns(rows) if name != MINI]
    heads = ["task", "metric", *(TITLES[name] for name in variants), *(f"over {TITLES[name]}" for name in others)]
    lines = task_lines(rows, variants, [(MINI, other) for other in others])
    note = (
        "Mean and standard deviation over three fine-tuning seeds, in points; in brackets without test rows that are in train. "
        "Differences with 95% intervals or p over rows and seeds; where there are leaks, those of the leak-free rows."
    )
    return "\n".join(
        [*markdown(heads, lines, left=2), "", f"{note} {gpu_of(rows)}, {results.date}; `{results.command}`.", ""]
    )


def tasks_finetune_summary(results: Results) -> str:
    """Return the scores alone, a column for each task."""
    rows: list[Row] = [dict(row) for row in results.rows]
    names = [task for task in TASKS if select(rows, task=task)]
    lines = [
        [TITLES[variant], *(_mean(select(rows, kind="run", variant=variant, task=task)) for task in names)]
        for variant in _columns(rows)
    ]
    note = "Leak-free test scores in points, means over three fine-tuning seeds, no corpus"
    heads = ["", *(TASKS[name] for name in names)]
    return "\n".join([*markdown(heads, lines), "", f"{note}; {gpu_of(rows)}, {results.date}; `{results.command}`.", ""])


def _columns(rows: list[Row]) -> list[str]:
    return [name for name in TITLES if select(rows, kind="run", variant=name)]


def _mean(runs: list[Row]) -> str:
    return f"{100 * fmean(runs[0]['leak_free']):.1f}" if runs else ""
