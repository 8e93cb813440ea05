"""The page of end-task aware training (tartan-scratch.yaml, tartan-checkpoint.yaml): tables, pairs and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from endtask.reporting.plots import DotRow, dot_chart
from endtask.reporting.svg import picture
from studies.stored_results import Compared
from studies.tables import TASKS as NAMES
from studies.tables import cost_to_best, dagger, gpu_of, is_clear, lead, markdown, pairs_table, score_table, select

Tree = dict[str, Any]
TASKS = ("citation_intent", "sciie", "chemprot")
STARTS = {"scratch": "from random weights", "checkpoint": "from a small pretrained encoder"}
TABLES = {
    "tapt": "Table 1: the task's own text",
    "dapt-tapt": "Table 2: the domain's and the task's text",
    "dapt": "Table 4: the domain's text alone",
    "amounts": "Figure 2: how much of the domain",
    "longer": "Figure 2 with enough steps to read all of it once",
    "defaults": "META with one setting changed, the task's own text",
}
AGAINST = {"amounts": "dapt", "longer": "dapt-1x-longer", "defaults": "meta-tapt"}
"""The variant that the others of a table are tested against; by default the variant of the table's name."""
PAPER = {
    name: f"{words}{title}"
    for table, title in (("tapt", "TAPT"), ("dapt-tapt", "DAPT + TAPT"), ("dapt", "DAPT"))
    for name, words in ((table, ""), (f"mt-{table}", "MT, "), (f"meta-{table}", "META, "))
} | {"dapt-tapt": "DAPT, then TAPT"}
"""The variants of the paper's three tables."""
_BOTH = "meta-dapt-tapt"
_FIGURE_4 = (
    "In the paper's figure the domain ends clearly above the task. `compare.html` and the report of a run draw the weights of "
    "every step."
)
_DOMAIN_VARIANTS = ("dapt", "mt-dapt", "meta-dapt")
_SHARED = {"dapt-1x": "DAPT, 1x", "dapt-all": "DAPT, all", **PAPER, "dapt-tapt": "DAPT + TAPT"}
QUESTIONS: dict[str, tuple[str, str, dict[str, tuple[str, str]]]] = {
    "meta_over_mt": (
        "Learned weights against equal ones",
        "META over MT",
        {name: (f"meta-{name}", f"mt-{name}") for name in ("tapt", "dapt-tapt", "dapt", "dapt-1x", "dapt-all")},
    ),
    **{
        f"{weighting}_full_over_light": (
            f"{weighting.upper()}, then a full fine-tuning, against a light one",
            "full over light",
            {name: (f"{weighting}-{name}-anew", f"{weighting}-{name}") for name in ("tapt", "dapt")},
        )
        for weighting in ("mt", "meta")
    },
    **{
        question.replace(",", "").replace(" ", "_"): (
            f"How much of the domain: {question}",
            question,
            {name: (f"{name}{more}", f"{name}{less}") for name in _DOMAIN_VARIANTS},
        )
        for question, more, less in (
            ("10x over 1x", "", "-1x"),
            ("all over 10x", "-all", ""),
            ("all over 1x, 750 steps", "-all-longer", "-1x-longer"),
        )
    },
}
"""By question: a title, the head of a column, and pairs of variants by what both share."""


def pairs(compared: Compared) -> Iterator[Tree]:
    """Yield the tests of the paper's variants against plain fine-tuning, and of the pairs of all questions."""
    for row in compared.table({"plain": "plain"} | PAPER, "plain"):
        if "lead" in row:
            yield {"kind": "over plain"} | {key: row[key] for key in ("cell", "lead", "interval", "p", "p_holm")}
    for question, (_, _, variants) in QUESTIONS.items():
        for shared, (cell, over) in variants.items():
            if {cell, over} <= set(compared.runs):
                yield {"question": question, "shared": shared, "cell": cell, "over": over, **compared.over(cell, over)}


def tartan_tables(results: Results) -> str:
    """Return all tables of the page."""
    rows: list[Tree] = results.rows
    parts = [*_over_plain(rows), *_last_weights(rows)]
    for start, words in STARTS.items():
        summary = f"All tables {words}, with intervals, tests, costs and times to the best dev score"
        parts += ["<details>", f"<summary>{summary}</summary>", ""]
        parts += [line for table in TABLES for task in TASKS for line in _table(rows, task, start, table)]
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
    """Return the lines of a table, none if other tables show all its variants."""
    found, against = select(rows, kind="cell", task=task, body=start, table=table), AGAINST.get(table, table)
    if not any(_is_specific(table, row["cell"]) for row in found):
        return []
    title = next(row["title"] for row in found if row["cell"] == against)
    lines = score_table(found, against=title, metric=metric_name(found[0]["metric"]))
    curves = select(rows, kind="curve", task=task, body=start)
    head = f"**{TABLES[table]}, {NAMES[task]}, {STARTS[start]}**"
    return [head, "", *lines, "", *cost_to_best(curves, found), ""]


def _is_specific(table: str, variant: str) -> bool:
    """Return whether a variant is in no other table."""
    if table == "amounts":
        return variant.endswith(("-1x", "-all"))
    return variant not in ("plain", AGAINST.get(table, table))


def _over_plain(rows: list[Tree]) -> Iterator[str]:
    """Yield the lines of the tables that compare all variants with plain fine-tuning."""
    for start, words in STARTS.items():
        lines = []
        for variant, title in PAPER.items():
            by_task = [select(rows, kind="over plain", body=start, task=task, cell=variant) for task in TASKS]
            if any(by_task):
                lines.append([title, *(lead(found[0]) if found else "" for found in by_task)])
        heads = ["", *(NAMES[task] for task in TASKS)]
        yield from (f"**Points above plain fine-tuning, {words}**", "", *markdown(heads, lines), "")


def _last_weights(rows: list[Tree]) -> Iterator[str]:
    """Yield the lines of the table of learned weights at the end of pre-training, with both auxiliary texts."""
    lines = []
    for start, words in STARTS.items():
        for task in TASKS:
            if weights := [row["weights"] for row in select(rows, kind="curve", task=task, body=start, cell=_BOTH)]:
                means = [f"{fmean(one[name] for one in weights):.2f}" for name in ("task", "tapt", "dapt")]
                above = sum(one["task"] > one["dapt"] for one in weights)
                lines.append([f"{NAMES[task]}, {words}", *means, f"{above} of {len(weights)}"])
    if lines:
        heads = ["", "the task", "its text", "the domain", "task above domain"]
        yield from (
            "**Learned weights after the last step, both texts (paper's Figure 4)**",
            "",
            *markdown(heads, lines),
        )
        yield from ("", _FIGURE_4, "")


def _pair_title(row: Tree) -> str:
    return f"{_SHARED[row['shared']]}, {NAMES[row['task']]}, {STARTS[row['body']]}"


LEGEND = {"plain": "plain fine-tuning", "mt": "MT: equal weights", "meta": "META: learned weights"}


def tartan_picture(results: Results) -> str:
    """Return a picture with a dot for each variant: points above masked LM before the task, filled if it is clear."""
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
    leads = [(series, found[name]) for series, name in enumerate(names) if name in found]
    return tuple((series, 100 * row["lead"], is_clear(row)) for series, row in leads if row.get("lead") is not None)
