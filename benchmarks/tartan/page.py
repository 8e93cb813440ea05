"""The evidence as a results file, and that file as tables.

    .venv/bin/python -m benchmarks.tartan.page --results DIR

DIR holds what came back from the GPU: `TASK-BODY-NAME.json` of `endtask compare --results` and
`TASK-BODY-NAME.curves.json` of `benchmarks.curves`, by whatever names the bundles had. They are kept in
`results/raw/tartan`, so that what comes back later is judged beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.compared import Compared, collect_from_command_line, dagger, lead, markdown, pairs_table
from benchmarks.curves import times
from benchmarks.kept import curve_rows, keep, known_rows, result_files
from benchmarks.results_file import RESULTS, Results, write_results
from benchmarks.tartan.cells import (
    AGAINST,
    AMOUNT_PAIRS,
    BODIES,
    ENDINGS,
    HEADS,
    NAMES,
    PAIRS,
    PLAIN,
    TABLES,
    Body,
    titles,
    trio,
)
from endtask.errors import InputError
from endtask.reporting.format import metric_name

Tree = dict[str, Any]
COMMAND = "python -m benchmarks.tartan.page"
QUESTIONS = {
    "meta_over_mt": (PAIRS, "Learned weights against equal ones", "META over MT"),
    **{
        f"{way}_full_over_light": (
            pairs,
            f"{way.upper()}, then a full fine-tuning, against a light one",
            "full over light",
        )
        for way, pairs in ENDINGS.items()
    },
    **{
        amounts.replace(",", "").replace(" ", "_"): (pairs, f"How much of the domain: {amounts}", amounts)
        for amounts, pairs in AMOUNT_PAIRS.items()
    },
}
"""What is asked of pairs of cells: the pairs by what they share, a title and a column's head."""
_TITLES = {arm.name: arm.title for arms in TABLES.values() for arm in arms}
BY_TABLES = {name: title for table in ("tapt", "dapt-tapt", "dapt") for name, title in trio(table).items()}
"""Masked LM before the task, MT and META of the paper's three tables, by the titles they are shown under."""


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Keep what came back, judge all files of a task and body together, and write `tartan.json`.

    What that file says of cells of which no predictions were kept stays as it is.
    """
    if not any(folder.glob("*.json")):
        raise InputError("no results file of a bundle there", path=folder, hint="such as sciie-scratch-tapt.json")
    _check_names(folder)
    kept = keep(folder, "tartan", results)
    rows: list[Tree] = []
    for task in NAMES:
        for encoder in BODIES:
            known = known_rows("tartan", results, task=task, encoder=encoder)
            files = result_files(kept, f"{task}-{encoder}")
            compared = Compared.read(files) if files else None
            if compared is not None:
                rows += list(_rows(compared, task, encoder))
                curves = curve_rows(kept, f"{task}-{encoder}", compared.done)
                rows += [{"kind": "curve", "task": task, "body": encoder, **row} for row in curves]
            rows += [row for row in known if compared is None or row["cell"] not in compared.runs]
    return write_results("tartan", COMMAND, rows, _summary(rows) or {"tables": 0}, results)


def _check_names(folder: Path) -> None:
    starts = tuple(f"{task}-{encoder}-" for task in NAMES for encoder in BODIES)
    for file in sorted(folder.glob("*.json")):
        if not file.name.startswith(starts):
            raise InputError("named for no task and body", path=file, hint="such as sciie-scratch-tapt.json")


def _rows(compared: Compared, task: str, encoder: str) -> Iterator[Tree]:
    common = {"task": task, "body": encoder}
    for run in compared.raw():
        yield {"kind": "run", **common, "gpu": compared.gpu, **run}
    for table, against in AGAINST.items():
        for row in compared.table(titles(table), against):
            shown = {"table": table, "metric": compared.measure.name}
            yield {"kind": "cell", **common, **shown, **row, **_of_one_model(row)}
    for row in compared.table({PLAIN: PLAIN} | BY_TABLES, PLAIN):
        if "lead" in row:
            told = {key: row[key] for key in ("cell", "lead", "interval", "p", "p_holm")}
            yield {"kind": "over plain", **common, **told}
    for question, (pairs, *_) in QUESTIONS.items():
        for shared, (one, other) in pairs.items():
            if one in compared.runs and other in compared.runs:
                asked = {"question": question, "shared": shared, "cell": one, "over": other}
                yield {"kind": "pair", **common, **asked, **compared.over(one, other)}


def _of_one_model(row: Tree) -> Tree:
    """What one model cost; a checkpoint that is fine-tuned as it is gives all of them in one run."""
    share = row["seeds"] / row["models"]
    return {"train_seconds": round(share * row["train_seconds"], 1), "flops": float(f"{share * row['flops']:.4g}")}


def _summary(rows: list[Tree]) -> Tree:
    """How far one cell of each pair lies above the other, and its p."""
    found: Tree = {}
    for row in (row for row in rows if row["kind"] == "pair"):
        name = "_".join((row["task"], row["body"], row["shared"].replace("-", "_"), row["question"]))
        found |= {name: row["lead"], f"{name}_p": row["p"]}
    return found


def tartan_table(results: Results) -> str:
    """All tables of the page."""
    rows: list[Tree] = results.rows
    parts = [*_plain_table(rows)]
    for encoder, words in BODIES.items():
        if tables := [line for table in HEADS for task in NAMES for line in _table(rows, task, encoder, table)]:
            summary = (
                f"<summary>All tables {words}, with intervals, tests, costs and times to the best dev score</summary>"
            )
            parts += ["<details>", summary, "", *tables, "</details>", ""]
    for question, (_, title, head) in QUESTIONS.items():
        if asked := [row | {"title": _in_words(row)} for row in rows if row.get("question") == question]:
            parts += [f"**{title}**", "", *pairs_table(asked, head), ""]
    gpu = next((row["gpu"] for row in rows if row["kind"] == "run"), None)
    how = (
        f"Mean ± spread over models of different seeds; {dagger(rows)}; Holm's counts a table, of the first two "
        "a column; training is both stages, on a GPU "
        "that many runs share: FLOPs compare, seconds hardly do. FLOPs of tables are matrix products, those "
        "up to the best dev score 6 x weights x tokens"
    )
    return "\n".join([*parts, f"{how}. Trained on {gpu or 'a CPU'}, {results.date}; `{results.command}`.", ""])


def _table(rows: list[Tree], task: str, encoder: Body, table: str) -> list[str]:
    """The lines of one table, or none where it says nothing of its own."""
    found = _cells_of(rows, task, encoder, table)
    if not _says_something(table, {row["cell"] for row in found}):
        return []
    shown = markdown(found, against=titles(table)[AGAINST[table]], metric=metric_name(found[0]["metric"]))
    head = f"**{HEADS[table]}, {NAMES[task]}, {BODIES[encoder]}**"
    return [head, "", shown, "", *times(_curves_of(rows, task, encoder), found), ""]


def _cells_of(rows: list[Tree], task: str, encoder: str, table: str) -> list[Tree]:
    """The lines of a table in their order."""
    wanted, order = ("cell", task, encoder, table), [*titles(table)]
    found = [row for row in rows if (row["kind"], row["task"], row.get("body"), row.get("table")) == wanted]
    return sorted(found, key=lambda row: order.index(row["cell"]))


def _curves_of(rows: list[Tree], task: str, encoder: str) -> list[Tree]:
    return [row for row in rows if (row["kind"], row["task"], row.get("body")) == ("curve", task, encoder)]


def _says_something(table: str, cells: set[str]) -> bool:
    """Whether there is more of a table than what is shown beside it."""
    return bool(cells & {arm.name for arm in TABLES[table]} - {AGAINST[table]})


def _plain_table(rows: list[Tree]) -> Iterator[str]:
    """What a user asks first: is a way to train better than fine-tuning alone?"""
    leads = {(row["body"], row["task"], row["cell"]): row for row in rows if row["kind"] == "over plain"}
    for encoder, words in BODIES.items():
        if not any(start == encoder for start, *_ in leads):
            continue
        yield from (f"**Points above plain fine-tuning, {words}**", "")
        yield from (f"| | {' | '.join(NAMES.values())} |", f"|---|{'---:|' * len(NAMES)}")
        for cell, title in BY_TABLES.items():
            found = [leads.get((encoder, task, cell)) for task in NAMES]
            if any(found):
                yield f"| {title} | {' | '.join(lead(one) if one else '' for one in found)} |"
        yield ""


def _in_words(row: Tree) -> str:
    """What both cells of a pair share.

    >>> _in_words({"task": "sciie", "body": "scratch", "shared": "dapt-tapt"})
    'DAPT + TAPT, SciERC, from random weights'
    """
    return f"{_TITLES[row['shared']].replace(', then', ' +')}, {NAMES[row['task']]}, {BODIES[row['body']]}"


if __name__ == "__main__":
    collect_from_command_line(collect, __doc__)
