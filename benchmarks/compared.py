"""Results files of `endtask compare` judged together: cells that did not fit into one bundle are still one table.

Each file has the right answers and all predictions, so paired tests between cells of different files are as good as
those inside one, as long as the rows are the same; other rows are refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.kept import JUDGED_BY, read_comparison
from endtask.errors import InputError, a_few, did_you_mean
from endtask.evaluation.significance import bootstrap_interval, holm, metric_permutation
from endtask.evaluation.task_metrics import Measure
from endtask.progress import say
from endtask.task.targets import Answers, from_lists

Tree = dict[str, Any]
_REASON = 80

_FORMER = {"regression": "regression", "multilabel": "multilabel", "token_classification": "token_classification"}


def type_of(tree: Tree, key: str = "kind") -> str:
    """Return the task type that a result file names; files of before the renaming have other names under `key`."""
    name = str(tree.get("type", tree.get(key, "text")))
    return _FORMER.get(name, name)


@dataclass(frozen=True)
class Compared:
    """The runs of all files by cell, and the rows that judge them."""

    measure: Measure
    split: str
    truth: Answers
    clean: np.ndarray
    groups: np.ndarray
    runs: Mapping[str, list[Tree]]
    gpu: str | None

    @classmethod
    def read(cls, files: Sequence[Path]) -> Compared:
        """From one file or several; of a cell that stands in two, the seeds are taken together.

        Of a comparison that was stopped, what is finished is taken as it is; what no file has is told.
        """
        trees = [read_comparison(file) for file in files]
        if not trees:
            raise InputError("no results file was given")
        first = trees[0]
        for file, tree in zip(files, trees, strict=True):
            for key in JUDGED_BY:
                if tree.get(key) != first.get(key):
                    raise InputError(f"judged by another {key} than {files[0]}", path=file, key=key)
        runs: dict[str, list[Tree]] = {}
        for run in (run for tree in trees for run in tree["runs"]):
            known = [other["seed"] for other in runs.setdefault(run["cell"], [])]
            if run["seed"] not in known:
                runs[run["cell"]].append(run)
        _tell_missing(files, trees, runs)
        kind = type_of(first)
        labels = tuple(first["labels"])
        truth = from_lists(first["truth"], kind)
        clean = np.asarray(first["leak_free"], dtype=bool)
        gpu = next(iter((first.get("machine") or {}).get("gpus") or ()), None)
        groups = np.asarray(first.get("row_groups", range(len(truth))), dtype=np.int64)  # older files have none
        return cls(Measure(first["metric"], kind, labels), first["split"], truth, clean, groups, runs, gpu)

    @property
    def done(self) -> frozenset[tuple[str, int]]:
        """The runs that have a score, by cell and seed."""
        return frozenset((cell, run["seed"]) for cell, runs in self.runs.items() for run in runs)

    def models(self, cell: str, part: str | None = None) -> list[float]:
        """The scores of all models of a cell, on the split that decides or another `part`."""
        return [score for run in self._runs(cell) for score in run[part or self.split]]

    def predictions(self, cell: str) -> Answers:
        """(models, rows, ...)."""
        kind = self.measure.type
        return np.stack([from_lists(answers, kind) for run in self._runs(cell) for answers in run["predicted"]])

    def p_value(self, cell: str, against: str, *, clean: bool = False) -> float:
        """Of the difference, by swapping what both said in each group of rows; `clean`: of those not in train."""
        rows = self.clean if clean else np.ones(len(self.truth), dtype=bool)
        one, other = self.predictions(cell)[:, rows], self.predictions(against)[:, rows]
        return metric_permutation(one, other, self.truth[rows], self.measure, groups=self.groups[rows])

    def interval(self, cell: str, against: str) -> tuple[float, float]:
        """Of the difference, 95% over other rows and other seeds; luck that equal seeds share cancels."""
        systems = (self._by_seed(cell), self._by_seed(against))
        seeds = [[run["seed"] for run in self._runs(each)] for each in (cell, against)]
        paired = seeds[0] == seeds[1] and systems[0].shape == systems[1].shape
        return bootstrap_interval(*systems, self.truth, self.measure, groups=self.groups, paired_runs=paired)

    def _by_seed(self, cell: str) -> Answers:
        """(seeds, models of each, rows, ...)."""
        return self.predictions(cell).reshape(len(self._runs(cell)), -1, *self.truth.shape)

    def over(self, one: str, other: str) -> Tree:
        """How far a cell lies above another, how far it may, and its p; the same of rows that are not in train."""
        difference = fmean(self.models(one)) - fmean(self.models(other))
        found: Tree = {"lead": round(difference, 5), "interval": [round(end, 5) for end in self.interval(one, other)]}
        found["p"] = round(self.p_value(one, other), 5)
        if not self.clean.all():
            mine, theirs = (self.models(cell, "leak_free") for cell in (one, other))
            if mine and theirs:
                found["leak_free_lead"] = round(fmean(mine) - fmean(theirs), 5)
            found["leak_free_p"] = round(self.p_value(one, other, clean=True), 5)
        return found

    def table(self, cells: Mapping[str, str], against: str) -> list[Tree]:
        """A row for each cell that is there, by the title it is shown under; Holm's p counts these rows alone."""
        rows = self._rows(cells)
        if against in self.runs:
            self._judge([(row, against) for row in rows if row["cell"] != against])
        return rows

    def ladder(self, cells: Mapping[str, str]) -> list[Tree]:
        """The same with each row against the one before it."""
        rows = self._rows(cells)
        self._judge([(row, before["cell"]) for before, row in pairwise(rows)])
        return rows

    def _rows(self, cells: Mapping[str, str]) -> list[Tree]:
        return [self._row(name, title) for name, title in cells.items() if name in self.runs]

    def _judge(self, pairs: Sequence[tuple[Tree, str]]) -> None:
        """Put into each row its lead over a cell, and how likely so large a one is by chance."""
        for row, other in pairs:
            row |= self.over(row["cell"], other)
        add_holm([row for row, _ in pairs])

    def _row(self, name: str, title: str) -> Tree:
        scores, runs = self.models(name), self._runs(name)
        row: Tree = {"cell": name, "title": title, "models": len(scores), "seeds": len(runs)}
        row |= {"mean": round(fmean(scores), 5), "std": round(stdev(scores) if len(scores) > 1 else 0.0, 5)}
        if dev := self.models(name, "dev"):
            row["dev"] = round(fmean(dev), 5)
        if not self.clean.all() and (leak_free := self.models(name, "leak_free")):
            row["leak_free"] = round(fmean(leak_free), 5)
        seconds, flops = (fmean(run["cost"][key] for run in runs) for key in ("train_seconds", "matmul_flops"))
        row |= {"train_seconds": round(seconds, 1), "flops": float(f"{flops:.4g}")}
        return row | {"text_bytes": runs[0]["cost"]["text_bytes"]}

    def raw(self) -> list[Tree]:
        """Every run without its predictions, for the results file."""
        return [
            {key: value for key, value in run.items() if key != "predicted"}
            for runs in self.runs.values()
            for run in runs
        ]

    def _runs(self, cell: str) -> list[Tree]:
        if cell not in self.runs:
            raise InputError(f"no cell is named {cell!r}", hint=did_you_mean(cell, self.runs))
        return self.runs[cell]


def _tell_missing(files: Sequence[Path], trees: Sequence[Tree], runs: Mapping[str, list[Tree]]) -> None:
    """Say which runs failed, and which runs and baselines are in no file (files from before the key are complete)."""
    there = {f"{cell}/seed-{run['seed']}" for cell, found in runs.items() for run in found} | set(runs)
    for file, tree in zip(files, trees, strict=True):
        for row in tree.get("rows", ()):
            for reason in row.get("failures") or ():
                say(f"{file}: a run of {row['name']} failed: {reason[:_REASON]}")
        missing = [key for key in tree.get("missing", ()) if key not in there]
        if missing:
            say(f"{file}: not complete, without {a_few(missing, 8)}")


def add_holm(rows: Sequence[Tree]) -> None:
    """Put into rows with a p Holm's, which counts all of them."""
    for name in ("p", "leak_free_p"):
        tested = [row for row in rows if name in row]
        for row, corrected in zip(tested, holm([row[name] for row in tested]), strict=True):
            row[f"{name}_holm"] = round(corrected, 5)


def pairs_table(rows: Iterable[Tree], head: str) -> list[str]:
    """Lines of a table of pairs, such as `over` gives; Holm's p counts all of them."""
    judged = [dict(row) for row in rows]
    add_holm(judged)
    has_leaks = any("leak_free_p" in row for row in judged)
    heads = ["", head, "95%", "p", "Holm's", *(["leak-free", "p", "Holm's"] if has_leaks else [])]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in judged:
        cells = [row["title"], lead(row), interval_in_words(row), f"{row['p']:.4f}", f"{row['p_holm']:.4f}"]
        if has_leaks:
            cells += [f"{100 * row['leak_free_lead']:+.1f}" if "leak_free_lead" in row else ""]
            cells += [_told(row, name, "{:.4f}") for name in ("leak_free_p", "leak_free_p_holm")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(rows: Sequence[Tree], *, against: str, metric: str) -> str:
    """The rows of `table` as a table; a dagger stands where a lead is sure."""
    has_leaks = any("leak_free" in row for row in rows)
    has_intervals = any("interval" in row for row in rows)
    heads = ["", metric, f"against {against}", *(["95%"] if has_intervals else []), "p", "Holm's"]
    heads += ["leak-free", "p", "Holm's"] if has_leaks else []
    heads += ["models", "FLOPs", "training"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in rows:
        cells = [row["title"], f"{100 * row['mean']:.1f} ± {100 * row['std']:.1f}"]
        cells += [lead(row) if "lead" in row else "", *([interval_in_words(row)] if has_intervals else [])]
        cells += [_told(row, "p", "{:.4f}"), _told(row, "p_holm", "{:.4f}")]
        if has_leaks:
            cells += [f"{100 * row['leak_free']:.1f}" if "leak_free" in row else ""]
            cells += [_told(row, name, "{:.4f}") for name in ("leak_free_p", "leak_free_p_holm")]
        cells += [str(row["models"]), _told(row, "flops", "{:.2g}"), _told(row, "train_seconds", "{:.0f} s")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def lead(row: Tree) -> str:
    """Points above another cell, with a dagger where they are sure.

    >>> lead({"lead": 0.0312, "p_holm": 0.01})
    '+3.1†'
    """
    return f"{100 * row['lead']:+.1f}{'†' if is_sure(row) else ''}"


def is_sure(row: Tree) -> bool:
    """Whether rows tell two cells apart, and other seeds would too, where an interval says so.

    >>> is_sure({"p_holm": 0.01}), is_sure({"p_holm": 0.01, "interval": [-0.1, 0.4]})
    (True, False)
    """
    low, high = row.get("interval", (1.0, 1.0))
    return bool(row["p_holm"] < 0.05 and (low > 0 or high < 0))


def dagger(rows: Iterable[Tree]) -> str:
    """What `is_sure` asks for, in the words of a page.

    >>> dagger([{"p_holm": 0.01}])
    "† where Holm's p is below .05"
    """
    if not any("interval" in row for row in rows):
        return "† where Holm's p is below .05"
    return "† where Holm's p, over rows, is below .05 and the 95% interval, over rows and seeds, leaves out 0"


def interval_in_words(row: Tree) -> str:
    """How far a lead may go in points, or nothing where nobody asked.

    >>> interval_in_words({"interval": [-0.004, 0.0312]})
    '-0.4 to +3.1'
    """
    if "interval" not in row:
        return ""
    low, high = row["interval"]
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def _told(row: Tree, name: str, form: str) -> str:
    """A figure, or nothing where there is none, or where nothing was spent."""
    return form.format(row[name]) if row.get(name) else ""


def collect_from_command_line(collect: Callable[[Path], Path], description: str | None) -> None:
    """What `python -m` does for a page: collect the results in the folder that the command line names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="what came back from the GPU")
    given = parser.parse_args()
    try:
        print(collect(given.results))
    except InputError as error:
        parser.error(str(error))
