"""The evidence as a results file, and that file as a page.

    .venv/bin/python -m benchmarks.alignment.page --results DIR

DIR holds what came back from the GPU: files of rows, `*.jsonl`, of one call of `benchmarks.alignment.train` or several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alignment.cases import SNIPPET
from benchmarks.alignment.cells import ALIGNED, OWN, PLAIN, TASKS, WITHOUT, Table, plan_of, tables
from benchmarks.alignment.found import SCORE, Found
from benchmarks.compared import collect_from_command_line
from benchmarks.results_file import RESULTS, Results, read_results, write_results
from endtask.experiments.few_shot.few_shot_scores import PERPLEXITY, LabelScores, score_table
from endtask.io.atomic import write_text

Tree = dict[str, Any]
COMMAND = "python -m benchmarks.alignment.page"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "alignment-results.md"
LABELS = 200
_BORROWED = ("head_only_runs_per_minute_cpu", "latency_p50_ms_256x3")
_FIRST_OBJECTIVES = {"mlm": "masked LM", "nsp": "next sentences"}
_STAGES = {"pre-training": "after pre-training", "fine-tuning": f"after {LABELS} labels"}


def collect(folder: Path, results: Path = RESULTS, page: Path = PAGE) -> Path:
    """Judge all rows together; write `alignment.json` and the page of its tables."""
    found = Found.read(folder)
    rows: list[Tree] = [*found.bodies.values()]
    for task in found.tasks:
        rows += _runs(found, task)
        for number, table in tables(task).items():
            rows += _cells(found, task, number, table)
    rows += [*found.held_out.values(), *found.cases.values()]
    path = write_results("alignment", COMMAND, rows, _summary(rows, results), results)
    write_text(page, alignment_page(read_results("alignment", results)))
    return path


def _runs(found: Found, task: str) -> Iterator[Tree]:
    """Every run by its figures, without its answers."""
    judge = found.judge(task)
    for (encoder, of_task, train, head, tasks, key), one in found.results.items():
        if of_task == task:
            truth = judge.units.truth[judge.draws[key.draw].test]
            score = judge.measure.score(truth, one.as_array(judge.units))
            statistics = {SCORE: round(score, 5), PERPLEXITY: round(one.perplexity, 4), "epoch": one.epoch}
            names = {"task": task, "body": encoder, "train": train, "head": head, "tasks": tasks}
            trial = {"labels": key.labels, "draw": key.draw, "seed": key.seed, "rate": key.learning_rate}
            yield {"kind": "run", **names, **trial, **statistics}


def _cells(found: Found, task: str, number: str, table: Table) -> Iterator[Tree]:
    """The lines of a table of which all runs are there, tested against the first."""
    by_arm = {arm.title: [found.of(task, arm, labels) for labels in table.labels] for arm in table.arms}
    whole = {title: several for title, several in by_arm.items() if all(several)}
    there = {title: [one for runs in several for one in runs or ()] for title, several in whole.items()}
    if table.arms[0].title not in there or len(there) < 2:
        return
    for title, cells in score_table(found.judge(task), there, table.labels).items():
        for cell in cells:
            yield {"kind": "cell", "task": task, "table": number, "title": title, **_statistics(cell)}


def _statistics(cell: LabelScores) -> Tree:
    found = {name: cell.scores[name] for name in (SCORE, PERPLEXITY)}
    scores = {name: {"mean": round(one.mean, 5), "std": round(one.std, 5)} for name, one in found.items()}
    tests = {
        name: {"lead": round(test.mean, 5), "p": round(test.p_value, 5), "p_holm": round(test.p_holm, 5)}
        for name, one in found.items()
        if (test := one.difference) is not None
    }
    return {"labels": cell.labels, "runs": cell.trials, "epoch": round(cell.epoch, 1), **scores, "tests": tests}


def _summary(rows: Sequence[Tree], results: Path) -> Tree:
    """What alignment gains with 200 labels, in points; speed and latency come from their own measurement."""
    statistics: Tree = {}
    for task in TASKS:
        arm = next(arm for arm in tables(task)["2"].arms if arm.encoder == ALIGNED and arm.head == "new")
        cell = _cell_of(rows, task, "2", arm.title, LABELS)
        if cell is not None:
            test = cell["tests"][SCORE]
            statistics |= {f"{task}_gain_{LABELS}": round(100 * test["lead"], 2), f"{task}_gain_{LABELS}_p": test["p"]}
    if (results / "few_examples.json").exists():
        measured = read_results("few_examples", results).summary
        statistics |= {name: measured[name] for name in _BORROWED if name in measured}
    return statistics or {"tables": 0}


def _cell_of(rows: Sequence[Tree], task: str, table: str, title: str, labels: int) -> Tree | None:
    wanted = ("cell", task, table, title, labels)
    keys = ("kind", "task", "table", "title", "labels")
    return next((row for row in rows if tuple(row.get(key) for key in keys) == wanted), None)


_PAGE = """# Aligned objectives: what they gain

The tables of Pierse and Lu (2020) at a small part of their budget, on tasks like theirs. What aligned objectives are
stands in [its own page](alignment.md), how this was measured in [the benchmarks](../benchmarks/README.md). The last
line of Table 5 asks about acronyms as the paper does; all other bodies are guided (`guided`).

<!-- results: alignment -->
{tables}<!-- end -->
"""


def alignment_page(results: Results) -> str:
    """The whole page."""
    return _PAGE.format(tables=alignment_tables(results))


def alignment_tables(results: Results) -> str:
    """All tables of the paper that there are rows for."""
    rows: list[Tree] = results.rows
    parts: list[str] = []
    for number in "12345":
        for task, name in TASKS.items():
            table = tables(task)[number]
            if lines := _table(rows, task, number, table):
                parts += [f"**{table.title}, {name}**", "", *lines, ""]
    parts += [*_held_out(rows), *_cases(rows)]
    where = f"Trained on {_gpu(rows) or 'a CPU'}, {results.date}; `{results.command}`."
    return "\n".join([*parts, f"{_how_learned(rows)} {_how_tested()} {_how_trained(rows)} {where}", ""])


def alignment_summary_table(results: Results) -> str:
    """A line for each task: the largest body with and without the objective that is shaped like it."""
    rows: list[Tree] = results.rows
    heads = ["not aligned", "aligned", "aligned, its head kept"]
    lines = [f"| accuracy with {LABELS} labels | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for task, name in TASKS.items():
        arms = [arm for arm in tables(task)["2"].arms if arm.encoder in (ALIGNED, WITHOUT[task])]
        cells = [_cell_of(rows, task, "2", arm.title, LABELS) for arm in arms]
        scores = [cell[SCORE] for cell in cells if cell]
        if len(scores) == len(heads):
            shown = (f"{100 * score['mean']:.1f} ± {100 * score['std']:.1f}" for score in scores)
            lines.append(f"| {name} | {' | '.join(shown)} |")
    runs = max((row["runs"] for row in rows if row["kind"] == "cell"), default=0)
    note = (
        f"Bodies of {ALIGNED.name}, {runs} runs a cell, {_gpu(rows) or 'a CPU'}, {results.date}; `{results.command}`."
    )
    return "\n".join([*lines, "", note, ""])


def _gpu(rows: Sequence[Tree]) -> str | None:
    return next((row["gpu"] for row in rows if row["kind"] == "body"), None)


def _how_learned(rows: Sequence[Tree]) -> str:
    """What a cell holds, and which rows chose its epoch."""
    runs = sorted({row["runs"] for row in rows if row["kind"] == "cell"})
    a_cell = f", {' or '.join(map(str, runs))} runs a cell" if runs else ""
    beside = ", ".join(
        f"{plan_of('ad', 'head', 'new', 1.0, (labels,)).held_out_rows(labels)} beside {labels}"
        for labels in tables("ad")["2"].labels
    )
    return (
        f"Accuracy in % and perplexity, mean ± spread over draws and seeds{a_cell}; lines of which runs are missing "
        f"are left out. The labels of a column are those learned from; more labels, held out, choose the "
        f"epoch: {beside}."
    )


def _how_tested() -> str:
    return (
        "† where a paired permutation test over rows against the first line of the same column has Holm's p below .05; "
        "rows of acronym detection that come from one document are swapped together."
    )


def _how_trained(rows: Sequence[Tree]) -> str:
    bodies = [row for row in rows if row["kind"] == "body"]
    steps = next((row["steps"] for row in bodies), 0)
    seconds = [row["seconds"] for row in bodies if row["body"] == ALIGNED.name]
    took = f" ({seconds[0]:.0f} s for {ALIGNED.name}, with others beside it)" if seconds else ""
    again = [row["body"] for row in bodies if row["trainings"] > 1]
    but = f", but {', '.join(again)} again for a part of the runs, on another machine" if again else ""
    return f"Each body is pre-trained once, for {steps:,} steps{took}{but}."


def _table(rows: Sequence[Tree], task: str, number: str, table: Table) -> list[str]:
    found = {
        arm.title: [_cell_of(rows, task, number, arm.title, labels) for labels in table.labels] for arm in table.arms
    }
    lines = [
        f"| {title} | {' | '.join(_in_words(cell, with_epoch=number == '4') for cell in cells if cell)} |"
        for title, cells in found.items()
        if all(cells)
    ]
    heads = " | ".join(f"{labels} labels" for labels in table.labels)
    return [f"| | {heads} |", f"|---|{'---:|' * len(table.labels)}", *lines] if lines else []


def _in_words(cell: Tree, *, with_epoch: bool) -> str:
    score, perplexity, tests = cell[SCORE], cell[PERPLEXITY], cell["tests"]
    markers = ["†" if name in tests and tests[name]["p_holm"] < 0.05 else "" for name in (SCORE, PERPLEXITY)]
    spread = f"{100 * score['mean']:.1f} ± {100 * score['std']:.1f}{markers[0]}"
    shown = f"{spread} / {perplexity['mean']:.2f} ± {perplexity['std']:.2f}{markers[1]}"
    return f"{shown}, epoch {cell['epoch']:.0f}" if with_epoch else shown


def _held_out(rows: Sequence[Tree]) -> list[str]:
    """Table 6."""
    found = {(row["body"], row["objective"]): row for row in rows if row["kind"] == "held_out"}
    bodies = {ALIGNED: "all four objectives", **{WITHOUT[task]: f"without {own}" for task, own in OWN.items()}}
    bodies[PLAIN] = "masked LM and next sentences"
    lines = []
    for encoder, title in bodies.items():
        cells = [found.get((encoder.name, name)) for name in _FIRST_OBJECTIVES]
        if all(cells):
            shown = [f"{100 * cell['accuracy']:.1f} / {cell['perplexity']:.2f}" for cell in cells if cell]
            lines.append(f"| {title} | {' | '.join(shown)} |")
    if not lines:
        return []
    heads = f"| | {' | '.join(_FIRST_OBJECTIVES.values())} |"
    title = "**Table 6: are the first objectives hurt? Pages that no body has read**"
    return [title, "", heads, f"|---|{'---:|' * len(_FIRST_OBJECTIVES)}", *lines, ""]


def _cases(rows: Sequence[Tree]) -> list[str]:
    """The two case studies."""
    found = {(row["task"], row["text"], row["stage"]): row["shown"] for row in rows if row["kind"] == "case"}
    parts = []
    for task, title in {"ct": "concepts in a query", "ad": f"acronyms of something in “{SNIPPET}”"}.items():
        texts = dict.fromkeys(text for of_task, text, _ in found if of_task == task)
        lines = [
            f"| {text} | {' | '.join(found.get((task, text, stage), '') for stage in _STAGES)} |" for text in texts
        ]
        if lines:
            heads = f"| | {' | '.join(_STAGES.values())} |"
            parts += [f"**Case study: {title}**", "", heads, "|---|---|---|", *lines, ""]
    return parts


if __name__ == "__main__":
    collect_from_command_line(collect, __doc__)
