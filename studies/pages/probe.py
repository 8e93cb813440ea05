"""The section on scores against what a step does (probe.json): the verdict, then the rank correlations."""

from __future__ import annotations

from collections.abc import Callable
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
    lines = [
        f"**{_verdict(rows, tasks)}**",
        "",
        *(f"- {_scores_off_chance(rows, task)} {_carried_over(rows, task)}" for task in tasks),
    ]
    names = sorted(SCORES, key=lambda name: -sum(row["spearman"] for row in select(rows, kind="score", score=name)))
    table = []
    for name in names:
        found = {row["task"]: row for row in select(rows, kind="score", score=name)}
        table.append([SCORES[name].title, _KINDS[SCORES[name].reads], *(_correlation(found[task]) for task in tasks)])
    heads = ["score", "", *(TASKS.get(task, task) for task in tasks)]
    setups = [_setup(row, rows) for row in probes]
    return "\n".join([*lines, "", *markdown(heads, table, left=2), "", *setups, "", f"{results.date}.", ""])


def _verdict(rows: list[Tree], tasks: list[str]) -> str:
    """Return which scores are above chance on every task, and which below it."""

    def on_all(is_so: Callable[[Tree], bool]) -> str:
        found = [{row["score"] for row in _scores(rows, task) if is_so(row)} for task in tasks]
        names = [SCORES[name].title for name in SCORES if all(name in of_task for of_task in found)]
        return ", ".join(names) or "no score"

    count = sum(len(_scores(rows, task)) for task in tasks)
    return (
        f"Above chance on all {len(tasks)} tasks: {on_all(lambda row: row['low'] > 0)}. "
        f"Below it: {on_all(lambda row: row['high'] < 0)}. "
        f"(Of {count} intervals of 95%, about {count / 20:.0f} leave out 0 by chance.)"
    )


def _scores(rows: list[Tree], task: str) -> list[Tree]:
    return [row for row in select(rows, kind="score", task=task) if SCORES[row["score"]].reads != "control"]


def _scores_off_chance(rows: list[Tree], task: str) -> str:
    """Return which scores are above and below chance on a task."""
    found = _scores(rows, task)
    right = sorted((row for row in found if row["low"] > 0), key=lambda row: -row["spearman"])
    wrong = [row for row in found if row["high"] < 0]
    names = ", ".join(f"{SCORES[row['score']].title} {row['spearman']:+.2f}" for row in right) or "none"
    text = f"{TASKS.get(task, task)}: above chance are {names}."
    if wrong:
        text += f" Below it: {', '.join(SCORES[row['score']].title for row in wrong)}."
    return text


def _carried_over(rows: list[Tree], task: str) -> str:
    """Return how much of a step's effect is the same under other masks of its texts and for other rows of the task."""
    same, masks, targets = (
        select(rows, kind="score", task=task, score=name)[0] for name in ("ceiling", "same_rows", "same_mask")
    )
    return (
        f"To first order the gradients of the measured rows and of the step's own mask tell the decrease "
        f"({same['spearman']:+.2f}); little of it carries over to other masks of the same texts ({_correlation(masks)}), or to "
        f"other rows of the task ({_correlation(targets)})."
    )


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
