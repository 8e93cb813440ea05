"""End-task aware training (tartan-scratch.yaml, tartan-checkpoint.yaml): tables, pairs of variants and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from endtask.reporting.plots import DotRow, dot_chart, picture
from studies.pages.recipe import TASKS as NAMES
from studies.stored_results import Compared
from studies.tables import cost_to_best, dagger, gpu_of, is_clear, lead, markdown, pairs_table, score_table, select

Tree = dict[str, Any]
TASKS = ("citation_intent", "sciie", "chemprot")
STARTS = {"scratch": "from random weights", "checkpoint": "from a small pretrained encoder"}
TABLES = {
    "tapt": "Table 1: the task's own text",
    "dapt-tapt": "Table 2: the domain's and the task's text",
    "dapt": "Table 4: the domain's text alone",
    "amounts": "Figure 2: how much of the domain",
    "longer": "Figure 2 with steps enough to read all of it once",
    "defaults": "One setting of META other than by default, the task's own text",
}
AGAINST = {"amounts": "dapt", "longer": "dapt-1x-longer", "defaults": "meta-tapt"}
"""What the other variants of a table are tested against, if not the variant of the table's name."""
PAPER = {
    name: f"{words}{title}"
    for table, title in (("tapt", "TAPT"), ("dapt-tapt", "DAPT + TAPT"), ("dapt", "DAPT"))
    for name, words in ((table, ""), (f"mt-{table}", "MT, "), (f"meta-{table}", "META, "))
} | {"dapt-tapt": "DAPT, then TAPT"}
"""The variants of the paper's three tables."""
_WAYS = {way: way for way in ("dapt", "mt-dapt", "meta-dapt")}
_SHARED = {"dapt-1x": "DAPT, 1x", "dapt-all": "DAPT, all", **PAPER, "dapt-tapt": "DAPT + TAPT"}
QUESTIONS: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {
    "meta_over_mt": (
        "Learned weights against equal ones",
        "META over MT",
        {name: (f"meta-{name}", f"mt-{name}") for name in ("tapt", "dapt-tapt", "dapt", "dapt-1x", "dapt-all")},
    ),
    **{
        f"{way}_full_over_light": (
            f"{way.upper()}, then a full fine-tuning, against a light one",
            "full over light",
            {name: (f"{way}-{name}-anew", f"{way}-{name}") for name in ("tapt", "dapt")},
        )
        for way in ("mt", "meta")
    },
    **{
        question.replace(",", "").replace(" ", "_"): (
            f"How much of the domain: {question}",
            question,
            {way: (f"{way}{more}", f"{way}{less}") for way in _WAYS},
        )
        for question, more, less in (
            ("10x over 1x", "", "-1x"),
            ("all over 10x", "-all", ""),
            ("all over 1x, 750 steps", "-all-longer", "-1x-longer"),
        )
    },
}
"""Pairs of variants by question: a title, the head of a column, and the pairs by what both share."""


def pairs(compared: Compared) -> Iterator[Tree]:
    """The variants of the paper against plain fine-tuning, and the pairs of all questions."""
    for row in compared.table({"plain": "plain"} | PAPER, "plain"):
        if "lead" in row:
            yield {"kind": "over plain"} | {key: row[key] for key in ("cell", "lead", "interval", "p", "p_holm")}
    for question, (_, _, found) in QUESTIONS.items():
        for shared, (one, other) in found.items():
            if {one, other} <= set(compared.runs):
                yield {"question": question, "shared": shared, "cell": one, "over": other, **compared.over(one, other)}


def tartan_tables(results: Results) -> str:
    """All tables of the page."""
    rows: list[Tree] = results.rows
    parts = [*_over_plain(rows)]
    for start, words in STARTS.items():
        parts += ["<details>"]
        parts += [
            f"<summary>All tables {words}, with intervals, tests, costs and times to the best dev score</summary>"
        ]
        parts += ["", *(line for table in TABLES for task in TASKS for line in _table(rows, task, start, table))]
        parts += ["</details>", ""]
    for question, (title, head, _) in QUESTIONS.items():
        if found := [row | {"title": _pair_title(row)} for row in select(rows, question=question)]:
            parts += [f"**{title}**", "", *pairs_table(found, head), ""]
    how = (
        f"Mean ± spread over models of different seeds; {dagger(rows)}; Holm's counts a table, of the first two a column; "
        "training is pre-training and fine-tuning, on a GPU that many runs share: FLOPs compare, seconds hardly do. FLOPs of "
        "tables are matrix products, those up to the best dev score 6 x weights x tokens"
    )
    where = f"Trained on {gpu_of(rows)}, {results.date}; `endtask compare studies/tartan-scratch.yaml` and `tartan-checkpoint.yaml`."
    return "\n".join([*parts, f"{how}. {where}", ""])


def _table(rows: list[Tree], task: str, start: str, table: str) -> list[str]:
    """The lines of one table, or none if it has nothing that other tables do not show."""
    found, against = select(rows, kind="cell", task=task, body=start, table=table), AGAINST.get(table, table)
    own = {row["cell"] for row in found if _is_own(table, row["cell"])}
    if not own:
        return []
    title = next(row["title"] for row in found if row["cell"] == against)
    lines = score_table(found, against=title, metric=metric_name(found[0]["metric"]))
    curves = select(rows, kind="curve", task=task, body=start)
    head = f"**{TABLES[table]}, {NAMES[task]}, {STARTS[start]}**"
    return [head, "", *lines, "", *cost_to_best(curves, found), ""]


def _is_own(table: str, variant: str) -> bool:
    if table == "amounts":
        return variant.endswith(("-1x", "-all"))
    return variant not in ("plain", AGAINST.get(table, table))


def _over_plain(rows: list[Tree]) -> Iterator[str]:
    """What a user asks first: is it better than fine-tuning alone?"""
    for start, words in STARTS.items():
        lines = []
        for variant, title in PAPER.items():
            found = [select(rows, kind="over plain", body=start, task=task, cell=variant) for task in TASKS]
            if any(found):
                lines.append([title, *(lead(each[0]) if each else "" for each in found)])
        heads = ["", *(NAMES[task] for task in TASKS)]
        yield from (f"**Points above plain fine-tuning, {words}**", "", *markdown(heads, lines), "")


def _pair_title(row: Tree) -> str:
    return f"{_SHARED[row['shared']]}, {NAMES[row['task']]}, {STARTS[row['body']]}"


LEGEND = {"plain": "plain fine-tuning", "mt": "MT: equal weights", "meta": "META: learned weights"}


def tartan_picture(results: Results) -> str:
    """A dot for each variant: points above masked LM before the task; filled if the difference is clear."""
    rows: list[DotRow] = []
    for start, words in STARTS.items():
        for table in ("tapt", "dapt-tapt", "dapt"):
            dots = {task: _dots(results.rows, task, start, table) for task in TASKS}
            rows.append(DotRow(f"{TABLES[table].split(':')[0]}, {words}"))
            rows += [DotRow(NAMES[task], found) for task, found in dots.items() if len(found) > 1]
    chart = dot_chart(
        rows,
        list(LEGEND.values()),
        title="Points above masked LM before the task",
        x_label="filled: Holm's p below .05; hollow: not significant",
    )
    return picture("Scores above masked LM before the task, in points: plain fine-tuning, MT and META", [chart])


def _dots(rows: list[Tree], task: str, start: str, table: str) -> tuple[tuple[int, float, bool], ...]:
    found = {row["cell"]: row for row in select(rows, kind="cell", task=task, body=start, table=table)}
    names = ("plain", f"mt-{table}", f"meta-{table}")
    leads = [(place, found[name]) for place, name in enumerate(names) if name in found]
    return tuple((place, 100 * row["lead"], is_clear(row)) for place, row in leads if row.get("lead") is not None)
