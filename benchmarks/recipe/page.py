"""The evidence for the recipe as results files, and those as tables.

    .venv/bin/python -m benchmarks.recipe.page --results DIR

DIR holds what came back from the GPU: `TASK-{final,random,pretrained}.json` and `chemprot-{paper,low,high}.json` of
`endtask compare --results`, and `SCREEN.jsonl` of `benchmarks.recipe.screen`, named after its plan. What is not there
yet is left out; screens that were collected before are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.compared import Compared, collect_from_command_line, dagger, markdown
from benchmarks.recipe.cells import CELL, LADDER, LONG, NAMES, TASKS
from benchmarks.results_file import RESULTS, Results, read_results, write_results
from endtask.errors import InputError
from endtask.reporting.format import metric_name

Tree = dict[str, Any]
COMMAND = "python -m benchmarks.recipe.page"
PRETRAINED = "base"
"""What `endtask compare` calls the only cell of settings without cells."""
FINAL = {
    CELL: "the recipe",
    LONG: "the same, 42 M parameters and ten minutes",
    "random": "the same, text at random",
    "no_corpus": "the same encoder without corpus",
    "tfidf": "TF-IDF + logistic regression",
    "majority": "the largest class",
    PRETRAINED: "a small pretrained encoder, fine-tuned*",
}
RUNGS = {
    "paper": "TLM's own recipe in the same minute",
    **{rung.name: rung.title for rung in LADDER},
    LONG: "42 M parameters, five times the steps, three times the text",
}
_PRETRAINED_NOTE = "\\* all-MiniLM-L6-v2, trained on a billion sentence pairs, papers among them: no like-for-like row."


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Judge what is there and write `recipe.json`, and the screens as `recipe_screens.json`."""
    screened = sorted(folder.glob("*.jsonl"))
    if screened:
        written = write_screens(screened, results)
    rows: list[Tree] = []
    summary: Tree = {}
    for task in TASKS:
        final = _existing(folder, *(f"{task}-{name}" for name in ("final", "long", "random", "pretrained")))
        if final and final[0].stem == f"{task}-final":
            compared = Compared.read(final)
            if CELL not in compared.runs:
                continue  # it was stopped before any of it was finished
            rows += _rows(task, "final", compared, compared.table(FINAL, CELL))
            summary[task] = task_summary(compared)
        ladder = _existing(folder, *(f"{task}-{name}" for name in ("high", "low", "paper", "long")))
        if ladder and ladder[0].stem == f"{task}-high":
            climbed = Compared.read(ladder)
            rows += _rows(task, "ladder", climbed, climbed.ladder(RUNGS))
    if rows:
        written = write_results("recipe", COMMAND, rows, summary or {"tasks": 0}, results)
    elif not screened:
        raise InputError("no results of a comparison there", path=folder, hint="such as chemprot-final.json")
    return written


def _existing(folder: Path, *names: str) -> list[Path]:
    return [path for name in names if (path := folder / f"{name}.json").exists()]


def _rows(task: str, table: str, compared: Compared, judged: Sequence[Tree]) -> list[Tree]:
    common = {"kind": "cell", "task": task, "table": table, "metric": compared.measure.name}
    raw = [{"kind": "run", "task": task, "table": table, "gpu": compared.gpu, **run} for run in compared.raw()]
    return raw + [{**common, **row} for row in judged]


def task_summary(compared: Compared) -> Tree:
    """The headline figures of a task; a baseline that was not measured is left out."""
    runs, scores = compared.runs[CELL], compared.models(CELL)
    clean = compared.models(CELL, "leak_free") or scores
    statistics: Tree = {
        "test_mean": fmean(scores),
        "test_std": stdev(scores) if len(scores) > 1 else 0.0,
        "clean_test_mean": fmean(clean),
        "minutes": fmean(run["cost"]["train_seconds"] for run in runs) / 60,
        "flops": fmean(run["cost"]["matmul_flops"] for run in runs),
        "seeds": len(scores),
    }
    names = {"tfidf": "tfidf", "no_corpus": "task_only", PRETRAINED: "pretrained_small"}
    statistics |= {name: fmean(compared.models(cell)) for cell, name in names.items() if cell in compared.runs}
    return {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in statistics.items()}


def write_screens(files: Sequence[Path], results: Path = RESULTS) -> Path:
    """All rows of the screens, those collected before included."""
    before = read_results("recipe_screens", results).rows if (results / "recipe_screens.json").exists() else []
    new = [file.stem for file in files]
    rows: list[Tree] = [row for row in before if row["screen"] not in new]
    for file in files:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]  # a last one may be cut off
        rows += [{"screen": file.stem, **_short(json.loads(line))} for line in lines]
    best: Tree = {}
    for row in sorted(screen_means(rows), key=lambda row: float(row["dev"])):
        best[row["screen"]] = {
            "dev": row["dev"],
            "stage1": row["stage1"],
            "stage2": row["stage2"],
        }
    summary = {name: best[name] for name in sorted(best)}
    return write_results("recipe_screens", "python -m benchmarks.recipe.screen", rows, summary, results)


def _short(row: Tree) -> Tree:
    """Without the folder, which says nothing elsewhere."""
    return {name: value for name, value in row.items() if name != "run"}


def screen_means(rows: Iterable[Tree]) -> list[Tree]:
    """The dev scores of each pair of variants, over fine-tuning seeds."""
    found: dict[tuple[str, str, str], list[Tree]] = {}
    for row in rows:
        if "dev" in row:
            found.setdefault((row["screen"], row["stage1"], row["stage2"]), []).append(row)
    means = []
    for (screen, stage1, stage2), members in found.items():
        dev = [float(row["dev"]) for row in members]
        spread = stdev(dev) if len(dev) > 1 else 0.0
        row = {"screen": screen, "stage1": stage1, "stage2": stage2, "values": members[0]["values"]}
        means.append(row | {"dev": round(fmean(dev), 4), "std": round(spread, 4), "seeds": len(dev)})
    return means


def screens_table(results: Results) -> str:
    """What was tried, by dev scores alone."""
    stage1 = {(row["screen"], row["stage1"]): row for row in results.rows if "dev" not in row}
    parts = []
    for screen in dict.fromkeys(str(row["screen"]) for row in results.rows):
        lines = ["| pre-training | fine-tuning | dev | seeds | what differs |", "|---|---|---:|---:|---|"]
        for row in (row for row in screen_means(results.rows) if row["screen"] == screen):
            own: Any = stage1.get((screen, row["stage1"]), {})
            values = {**(own.get("values") or {}), **row["values"]}
            told = ", ".join(f"`{key}={_told(value)}`" for key, value in values.items())
            score = f"{100 * row['dev']:.1f} ± {100 * row['std']:.1f}"
            lines.append(f"| {row['stage1']} | {row['stage2']} | {score} | {row['seeds']} | {told} |")
        text = next((row["text"] for row in results.rows if row["screen"] == screen and row.get("text")), None)
        parts += [f"**{screen}**{f', {text} of text' if text else ''}", "", *lines, ""]
    where = next((row["gpu"] for row in results.rows if row.get("gpu")), "a CPU")
    return "\n".join(
        [*parts, f"Dev scores, mean ± spread over fine-tuning seeds on one pre-training each; {where}.", ""]
    )


def _told(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def recipe_table(results: Results) -> str:
    """The final comparisons, then the ladder."""
    parts: list[str] = []
    rows: list[Tree] = results.rows
    for table, head, against in (("final", "", FINAL[CELL]), ("ladder", "The ladder, ", "the rung before")):
        for task in TASKS:
            found = [row for row in rows if (row["kind"], row["task"], row["table"]) == ("cell", task, table)]
            if found:
                metric = metric_name(found[0]["metric"])
                parts += [f"**{head}{NAMES[task]}**", "", markdown(found, against=against, metric=metric), ""]
    how = f"Mean ± spread over all models (pre-training x fine-tuning seeds); {dagger(rows)}"
    last = f"{how}. Seconds are those of a run with its fine-tunings, of several that shared the GPU. "
    last += f"Trained on {_gpu(rows)}, "
    note = [_PRETRAINED_NOTE, ""] if any(row.get("cell") == PRETRAINED for row in rows) else []
    return "\n".join([*parts, *note, f"{last}{results.date}; `{results.command}`.", ""])


def _gpu(rows: Sequence[Tree]) -> str:
    return next((row["gpu"] for row in rows if row["kind"] == "run" and row["gpu"]), "a CPU")


def recipe_summary_table(results: Results) -> str:
    """A line for each task: the recipe, and what else one could do."""
    others = {"pretrained_small": "small pretrained encoder*", "task_only": "without corpus", "tfidf": "TF-IDF"}
    statistics: dict[str, Any] = {task: results.summary[task] for task in TASKS if task in results.summary}
    shown = {key: title for key, title in others.items() if all(key in one for one in statistics.values())}
    heads = ["", "the recipe", *shown.values(), "FLOPs"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for task, figure in statistics.items():
        scores = [f"{100 * figure['test_mean']:.1f} ± {100 * figure['test_std']:.1f}"]
        scores += [f"{100 * figure[key]:.1f}" for key in shown]
        lines.append(f"| {' | '.join([NAMES[task], *scores, format(figure['flops'], '.2g')])} |")
    note = [_PRETRAINED_NOTE, ""] if "pretrained_small" in shown else []
    seeds = ", ".join(f"{figure['seeds']}" for figure in statistics.values())
    last = f"Test micro-F1 (ChemProt) and macro-F1 of {seeds} models, {_gpu(results.rows)}"
    return "\n".join([*lines, "", *note, f"{last}, {results.date}; `{results.command}`.", ""])


if __name__ == "__main__":
    collect_from_command_line(collect, __doc__)
