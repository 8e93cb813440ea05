"""The section on scores against what a step does (probe.json): the verdict, then the rank correlations."""

from __future__ import annotations

from typing import Any

from benchmarks.results_file import Results
from studies.probe_scores import SCORES
from studies.tables import TASKS, markdown, select

Tree = dict[str, Any]
_KINDS = {"gradients": "scores of gradients", "words": "scores of words", "control": "controls"}


def probe_section(results: Results) -> str:
    """Return the verdict, and a row for each score with a column for each task."""
    rows: list[Tree] = results.rows
    probes = select(rows, kind="probe")
    tasks = [row["task"] for row in probes]
    lines = [f"**{_verdict(rows, task)}**" for task in tasks]
    names = sorted(SCORES, key=lambda name: -sum(row["spearman"] for row in select(rows, kind="score", score=name)))
    table = []
    for name in names:
        found = {row["task"]: row for row in select(rows, kind="score", score=name)}
        table.append([SCORES[name].title, _KINDS[SCORES[name].reads], *(_correlation(found[task]) for task in tasks)])
    heads = ["score", "", *(TASKS.get(task, task) for task in tasks)]
    setups = [_setup(row, rows) for row in probes]
    return "\n".join(["\n".join(lines), "", *markdown(heads, table, left=2), "", *setups, "", f"{results.date}.", ""])


def _verdict(rows: list[Tree], task: str) -> str:
    """Return which scores are told from chance, and whether the best of gradients is above the best of words."""
    found = [row for row in select(rows, kind="score", task=task) if SCORES[row["score"]].reads != "control"]
    right = sorted((row for row in found if row["low"] > 0), key=lambda row: -row["spearman"])
    wrong = [row for row in found if row["high"] < 0]
    names = ", ".join(f"{SCORES[row['score']].title} {row['spearman']:+.2f}" for row in right) or "none"
    text = f"{TASKS.get(task, task)}: above chance are {names}."
    if wrong:
        text += f" Below it: {', '.join(SCORES[row['score']].title for row in wrong)}."
    return text


def _correlation(row: Tree) -> str:
    return f"{row['spearman']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"


def _setup(row: Tree, rows: list[Tree]) -> str:
    """Return a line on the size of a probe and on what its scoring model knows."""
    score, plan = row["held_out"], row["plan"]
    batches = select(rows, kind="score", task=row["task"])[0]["batches"]
    helped = f"{row['decrease']['helped']:.0%}" if "decrease" in row else ""
    return (
        f"- {TASKS.get(row['task'], row['task'])}: {batches} batches of {plan['texts']} candidates, a step of "
        f"{plan['learning_rate']:g} each, of which {helped} lower the loss; the scoring model ({row['model']}) has "
        f"{score['metric']} {score['score']:.3f} on rows it was not fitted on (commonest answer {score['majority']:.3f})."
    )
