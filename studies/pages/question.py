"""The section of a study with one question: the verdict over all tasks, then a table for each task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from benchmarks.results_file import Results
from endtask.reporting.format import metric_name
from studies.estimates import Comparison, Estimate, estimate, pooled, verdict
from studies.stored_results import Compared
from studies.tables import TASKS, dagger, gpu_of, markdown, percent, score_table, select

Tree = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """A statement that holds if one variant scores more than another one."""

    statement: str
    better: str
    worse: str


QUESTIONS: dict[str, tuple[Pair, ...]] = {
    "tasks": (
        Pair("random weights with a selection are better than a small pretrained encoder", "long", "small"),
        Pair("random weights with a selection are better than endtask-mini", "long", "mini"),
        Pair("random weights with a selection are better than TF-IDF", "long", "tfidf"),
    ),
    "tasks_finetune": (
        Pair("endtask-mini is better than a small pretrained encoder", "mini", "small"),
        Pair("endtask-mini is better than TF-IDF", "mini", "tfidf"),
        Pair("endtask-mini is better than random weights of its shape", "mini", "random"),
    ),
    "laptop": (
        Pair("ten minutes are better than TF-IDF", "ten", "tfidf"),
        Pair("two minutes are better than TF-IDF", "two", "tfidf"),
        Pair("ten minutes are better than two", "ten", "two"),
        Pair("two minutes in bfloat16 by AMX are better than TF-IDF", "two-amx", "tfidf"),
        Pair("two minutes in bfloat16 by AMX are better than in float32", "two-amx", "two"),
    ),
    "tlm_rho2": (
        Pair("rho2 = 20 is better than 0", "rho2-20", "rho2-0"),
        Pair("rho2 = 100 is better than 0", "rho2-100", "rho2-0"),
        Pair("rho2 = 1000 is better than 20", "rho2-1000", "rho2-20"),
    ),
    "tlm_stages": (
        Pair("a second stage helps, rho1 = 19", "two-rho1-19", "one-rho1-19"),
        Pair("a second stage helps, rho1 = 3", "two-rho1-3", "one-rho1-3"),
    ),
    "tlm_passages": (
        Pair("five passages a row are better than one", "top-5", "top-1"),
        Pair("25 are better than five", "top-25", "top-5"),
        Pair("the best 50 MB are better than one passage a row", "best-50MB", "top-1"),
    ),
    "tlm_corpus": (
        Pair("half of the corpus is better than a quarter", "half", "quarter"),
        Pair("all of it is better than a quarter", "all", "quarter"),
    ),
    "plm_mlm": (
        Pair("masked LM on the task's text first is better than plain fine-tuning", "plm-mlm", "plain"),
        Pair("the selection first is better than plain fine-tuning", "plm-selection", "plain"),
        Pair("the selection is better than the task's text", "plm-selection", "plm-mlm"),
    ),
    "influence_informed": (
        Pair("informed influence is better than the best rank", "informed-20", "best_rank-20"),
        Pair("informed influence is better than DSIR", "informed-20", "dsir-20"),
        Pair("informed influence is better than the classifier", "informed-20", "classifier-20"),
        Pair("informed influence is better than chance", "informed-20", "random-20"),
        Pair("two rounds are better than the best rank", "rounds-20", "best_rank-20"),
        Pair("the paper's influence is better than the best rank", "paper-20", "best_rank-20"),
        Pair("a fifth is better than four fifths", "informed-20", "informed-80"),
        Pair("the last layer is better than the one at a quarter", "informed-20", "quarter-20"),
    ),
    "selectors": (
        Pair("the best rank is better than chance, a fifth", "best_rank-20", "random-20"),
        Pair("DSIR is better than the best rank, a fifth", "dsir-20", "best_rank-20"),
        Pair("the classifier is better than the best rank, a fifth", "classifier-20", "best_rank-20"),
        Pair("ranks of BM25 and DSIR are better than the best rank, a fifth", "fusion-20", "best_rank-20"),
        Pair("nearest neighbors are better than the best rank, a fifth", "neighbors-20", "best_rank-20"),
        Pair("influence is better than the best rank, a fifth", "influence-20", "best_rank-20"),
        Pair("DSIR is better than the best rank, a twentieth", "dsir-5", "best_rank-5"),
        Pair("the classifier is better than the best rank, a twentieth", "classifier-5", "best_rank-5"),
        Pair("ranks of BM25 and DSIR are better than the best rank, a twentieth", "fusion-5", "best_rank-5"),
        Pair("nearest neighbors are better than the best rank, a twentieth", "neighbors-5", "best_rank-5"),
        Pair("influence is better than the best rank, a twentieth", "influence-5", "best_rank-5"),
        Pair("a fifth by best rank is better than a twentieth", "best_rank-20", "best_rank-5"),
    ),
    "iss_dapt": (
        Pair("ISS-DAPT is better than DAPT on all candidates", "iss-20", "dapt"),
        Pair("ISS-DAPT is better than DAPT on the fifth that ranks best", "iss-20", "rank-20"),
        Pair("ISS-DAPT is better than DAPT on a random fifth", "iss-20", "random-20"),
        Pair("DAPT on all candidates is better than plain fine-tuning", "dapt", "plain"),
        Pair("ISS-DAPT is better than plain fine-tuning", "iss-20", "plain"),
    ),
    "meta_gap_again": (
        Pair("META is worse than fixed weights", "equal", "meta"),
        Pair("META that cannot move is worse than fixed weights", "equal", "still"),
        Pair("the same with dev held out is worse than fixed weights", "equal", "still-dev"),
        Pair("heads clipped apart are worse than clipped together", "equal", "equal-apart"),
        Pair("META without clipping is worse than META", "meta", "meta-unclipped"),
        Pair("META without a compiler is worse than META", "meta", "meta-eager"),
    ),
    "tartan_weights": (Pair("a separate head scores more than the task's own", "separate-head", "own-head"),),
    "alignment_fair": (
        Pair("aligned objectives help", "aligned", "plain"),
        Pair("the aligned head, kept, helps", "aligned-kept", "aligned"),
        Pair("aligned objectives with acronyms as published help", "published", "plain"),
    ),
}
"""By the name of the results file: what its study asks, the decisive statement first."""


def pairs_of(name: str) -> Callable[[Compared], Iterator[Tree]]:
    """Return a function that tests the pairs of a question whose variants have runs."""

    def pairs(compared: Compared) -> Iterator[Tree]:
        for pair in QUESTIONS[name]:
            if pair.better in compared.runs and pair.worse in compared.runs:
                found = compared.over(pair.better, pair.worse)
                yield {"title": pair.statement, "cell": pair.better, "over": pair.worse, **found}

    return pairs


def question_section(name: str) -> Callable[[Results], str]:
    """Return the function that writes the section of a results file."""

    def section(results: Results) -> str:
        rows: list[Tree] = results.rows
        lines = [*verdicts(name, rows), ""]
        if name == "alignment_fair":
            lines += _arms(rows)
        for task in _tasks(rows):
            lines += _tables(task, select(rows, kind="cell", task=task))
        if weights := _weights(rows):
            lines += [*weights, ""]
        how = f"{dagger(rows)[0].upper()}{dagger(rows)[1:]}. " if select(rows, kind="cell") else ""
        return "\n".join([*lines, f"{how}Trained on {gpu_of(rows)}, {results.date}; `{results.command}`.", ""])

    return section


def _tasks(rows: list[Tree]) -> list[str]:
    return list(dict.fromkeys(row["task"] for row in rows))


def verdicts(name: str, rows: list[Tree]) -> list[str]:
    """Return the table of statements, the decisive one first."""
    lines = []
    for pair in QUESTIONS[name]:
        by_task = {task: estimate(Comparison(name, task, pair.better, pair.worse)) for task in _tasks(rows)}
        found = {task: one for task, one in by_task.items() if one is not None}
        if found:
            mean = pooled(found.values())
            shown = "; ".join(f"{TASKS.get(task, task)} {_interval(one)}" for task, one in found.items())
            lines.append([pair.statement, shown, "" if mean is None else _interval(mean), f"**{verdict(mean)}**"])
    heads = ["", "difference in points [95%]", "all together", "verdict"]
    return markdown(heads, lines, left=len(heads))


def _interval(found: Estimate) -> str:
    ends = "" if found.low is None or found.high is None else f" [{found.low:+.1f}, {found.high:+.1f}]"
    return f"{found.mean:+.1f}{ends}"


def _tables(task: str, cells: list[Tree]) -> Iterator[str]:
    """Yield the tables of a task."""
    for table in dict.fromkeys(row.get("table") for row in cells):
        found = [row for row in cells if row.get("table") == table]
        reference = found[0]["against"]
        against = next((row["title"] for row in found if row["cell"] == reference), reference)
        yield from (f"**{TASKS.get(task, task)}**", "")
        yield from (*score_table(found, against=against, metric=metric_name(found[0]["metric"])), "")


def _weights(rows: list[Tree]) -> list[str]:
    """Return a list of the task's learned weight at the end."""
    lines = []
    curves = [row for row in select(rows, kind="curve") if "task" in row.get("weights", {})]
    for task, cell in dict.fromkeys((row["task"], row["cell"]) for row in curves):
        last = [row["weights"]["task"] for row in select(curves, task=task, cell=cell)]
        lines.append(
            f"- {TASKS.get(task, task)}, {cell}: the task's weight ends at {fmean(last):.2f} ({len(last)} runs)"
        )
    return lines


def _arms(rows: list[Tree]) -> list[str]:
    """Return the table of the mean accuracy of each arm over its pre-trainings."""
    lines = []
    for task in _tasks(rows):
        for arm in dict.fromkeys(row["cell"] for row in select(rows, task=task)):
            scores = [fmean(row["test"]) for row in select(rows, task=task, cell=arm)]
            spread = percent(stdev(scores)) if len(scores) > 1 else "0.0"
            lines.append([TASKS.get(task, task), arm, f"{percent(fmean(scores))} ± {spread}", str(len(scores))])
    return [*markdown(["", "", "accuracy with 200 labels", "pre-trainings"], lines, left=2), ""]
