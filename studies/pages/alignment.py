"""The page of aligned objectives and few labels (alignment.yaml): the tables of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results_file import Results
from endtask.io.machine import describe_machine
from endtask.io.stage_files import read_manifest
from studies.tables import gpu_of, markdown, mean_std, percent, select

Tree = dict[str, Any]
TASKS = {"ct": "concept tagging", "ad": "acronym detection"}
TABLES = {
    "1": "Table 1: sizes",
    "2": "Table 2: numbers of labels",
    "3": "Table 3: what is trained",
    "4": "Table 4: learning rates",
    "5": "Table 5: objectives left out",
}
_PLAIN = "masked LM and next sentences"
LARGEST, LABELS, HELD_OUT = "768x3", 200, 0.2
_SNIPPET = "every month the bank of england sets an interest rate. its votes are published two weeks later."


def few_shot_rows(task: str, outcome: Tree) -> Iterator[Tree]:
    """Yield a row for each cell of the tables in `few-shot.json` of a task."""
    for table in outcome["tables"]:
        for row in table["rows"]:
            for entry in row["entries"]:
                scores = {name: entry["scores"][name] for name in ("accuracy", "perplexity")}
                tests = {
                    name: {"lead": score["difference"]["mean"], "p": score["difference"]["p_value"]}
                    | {"p_holm": score["difference"]["p_holm"]}
                    for name, score in scores.items()
                    if score["difference"] is not None
                }
                yield {
                    "kind": "cell",
                    "task": task,
                    "table": table["name"].removesuffix(f"-{task}"),
                    "title": row["name"],
                    "labels": entry["labels"],
                    "runs": entry["trials"],
                    "epoch": round(entry["epoch"], 1),
                    **{name: {"mean": score["mean"], "std": score["std"]} for name, score in scores.items()},
                    "tests": tests,
                }


def arm_rows(task: str, outcome: Tree) -> Iterator[Tree]:
    """Yield a row for each pre-training of an arm: variants are named ARM-SEED."""
    for table in outcome["tables"]:
        for row in table["rows"]:
            arm, _, seed = row["run"].rpartition("-")
            cell = f"{arm}-kept" if row["head"] == "keep" else arm
            for entry in row["entries"]:
                yield {
                    "kind": "run",
                    "task": task,
                    "cell": cell,
                    "seed": int(seed),
                    "labels": entry["labels"],
                    "trials": entry["trials"],
                    "test": [round(entry["scores"]["accuracy"]["mean"], 5)],
                    "perplexity": round(entry["scores"]["perplexity"]["mean"], 4),
                }


def encoder_rows(folder: Path) -> Iterator[Tree]:
    """Yield the cost of pre-training of each variant in a task's folder."""
    for stage in sorted(folder.glob("variants/*/seed-*/pretrain")):
        if (manifest := read_manifest(stage)) is not None:
            cost = {"steps": manifest["counts"]["steps"], "seconds": manifest["seconds"]}
            gpu = next(iter(describe_machine()["gpus"]), None)
            yield {"kind": "body", "body": stage.parents[1].name, **cost, "gpu": gpu, "trainings": 1}


def alignment_tables(results: Results) -> str:
    """Return the tables of the paper that have rows."""
    rows: list[Tree] = results.rows
    parts: list[str] = []
    for number, title in TABLES.items():
        for task, name in TASKS.items():
            if cells := select(rows, kind="cell", task=task, table=number):
                parts += [f"**{title}, {name}**", "", *_table(cells, with_epoch=number == "4"), ""]
    parts += [*_held_out(rows), *_cases(rows)]
    where = f"Trained on {gpu_of(rows)}, {results.date}; `endtask few-shot studies/alignment.yaml`."
    return "\n".join([*parts, f"{_notes(rows)} {where}", ""])


def alignment_summary(results: Results) -> str:
    """Return a table with a line for each task: the largest encoder without any aligned objective, and with both."""
    rows: list[Tree] = results.rows
    titles = (("5", _PLAIN), ("2", f"{LARGEST}, new head"), ("2", f"{LARGEST}, kept head"))
    lines = []
    for task, name in TASKS.items():
        cells = [
            select(rows, kind="cell", task=task, table=table, title=title, labels=LABELS) for table, title in titles
        ]
        lines.append([name, *(mean_std(cell[0]["accuracy"]) for cell in cells if cell)])
    heads = [f"accuracy with {LABELS} labels", "masked LM and next sentence", "aligned", "aligned, with its head"]
    runs = max(row["runs"] for row in select(rows, kind="cell"))
    note = f"Encoders of {LARGEST}, one pre-training a column, {runs} runs a cell, {gpu_of(rows)}, {results.date}; "
    note += f"`endtask few-shot studies/alignment.yaml`.{_tokens(rows)}"
    return "\n".join([*markdown(heads, lines), "", note, ""])


def _tokens(rows: Sequence[Tree]) -> str:
    """Return a sentence on the tokens that both encoders read in equally many steps; empty if they are not known."""
    read = {row["body"]: row["tokens"] for row in select(rows, kind="body") if "tokens" in row}
    plain, aligned = (read.get(name) for name in (f"{LARGEST}-no-hyperlinks-no-acronyms", LARGEST))
    if plain is None or aligned is None:
        return ""
    return f" In as many steps the first read {plain / 1e6:.0f}, the others {aligned / 1e6:.0f} million tokens."


def _table(cells: Sequence[Tree], *, with_epoch: bool) -> list[str]:
    by_title: dict[str, list[Tree]] = {}
    for cell in cells:
        by_title.setdefault(cell["title"], []).append(cell)
    labels = dict.fromkeys(cell["labels"] for cell in cells)
    lines = [[title, *(_cell(cell, with_epoch) for cell in row)] for title, row in by_title.items()]
    return markdown(["", *(f"{number} labels" for number in labels)], lines)


def _cell(cell: Tree, with_epoch: bool) -> str:
    score, perplexity = cell["accuracy"], cell["perplexity"]
    daggers = [
        "‡" if cell["tests"].get(name, {"p_holm": 1})["p_holm"] < 0.05 else "" for name in ("accuracy", "perplexity")
    ]
    text = f"{mean_std(score)}{daggers[0]} / {perplexity['mean']:.2f} ± {perplexity['std']:.2f}{daggers[1]}"
    return f"{text}, epoch {cell['epoch']:.0f}" if with_epoch else text


def _held_out(rows: Sequence[Tree]) -> list[str]:
    """Return the lines of Table 6."""
    encoders = {
        LARGEST: "all four objectives",
        f"{LARGEST}-no-hyperlinks": "without hyperlinks",
        f"{LARGEST}-no-acronyms": "without acronyms",
        f"{LARGEST}-no-hyperlinks-no-acronyms": "masked LM and next sentences",
    }
    lines = []
    for encoder, title in encoders.items():
        measured = [select(rows, kind="held_out", body=encoder, objective=name) for name in ("mlm", "nsp")]
        if all(measured):
            lines.append([title, *(f"{percent(row['accuracy'])} / {row['perplexity']:.2f}" for row, *_ in measured)])
    title = "**Table 6: do aligned objectives harm the others? Held-out pages**"
    return [title, "", *markdown(["", "masked LM", "next sentences"], lines), ""] if lines else []


def _cases(rows: Sequence[Tree]) -> list[str]:
    """Return the lines of the two case studies."""
    answers = {(row["task"], row["text"], row["stage"]): row["shown"] for row in select(rows, kind="case")}
    parts = []
    for task, title in {"ct": "concepts in a query", "ad": f"acronyms of something in “{_SNIPPET}”"}.items():
        texts = dict.fromkeys(text for of_task, text, _ in answers if of_task == task)
        stages = ("pre-training", "fine-tuning")
        lines = [[text, *(answers.get((task, text, stage), "") for stage in stages)] for text in texts]
        heads = ["", "after pre-training", f"after {LABELS} labels"]
        parts += [f"**Case study: {title}**", "", *markdown(heads, lines, left=3), ""] if lines else []
    return parts


def _notes(rows: Sequence[Tree]) -> str:
    cells, encoders = select(rows, kind="cell"), select(rows, kind="body")
    runs = " or ".join(str(number) for number in sorted({row["runs"] for row in cells}))
    labels = dict.fromkeys(row["labels"] for row in select(cells, task="ad", table="2"))
    held_out = ", ".join(f"{max(2, round(HELD_OUT * number))} with {number}" for number in labels)
    seconds = next(row["seconds"] for row in encoders if row["body"] == LARGEST)
    again = [row["body"] for row in encoders if row["trainings"] > 1]
    exception = f"; {', '.join(again)} again for a part of the runs, on another machine" if again else ""
    return (
        f"Accuracy in % and perplexity, mean ± spread over draws and seeds, {runs} runs a cell; lines with missing runs are left "
        f"out. A column's number counts the train labels; more labels, held out, choose the epoch: {held_out}. "
        "‡ where a paired permutation test over rows against the first line of the same column has Holm's p below .05; rows "
        "of acronym detection from one document are swapped together. Each encoder is pre-trained once, so other seeds of "
        "pre-training may differ: for "
        f"{encoders[0]['steps']:,} steps ({seconds:.0f} s for {LARGEST}, while others shared the GPU){exception}."
    )
