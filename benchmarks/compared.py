"""Results files of `endtask compare` judged together: cells that did not fit into one bundle are still one table.

Each file has the right answers and all predictions, so paired tests between cells of different files are as good as
those inside one, as long as the rows are the same; other rows are refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.kept import JUDGED_BY, read_comparison
from endtask.errors import InputError, a_few, did_you_mean
from endtask.evaluate.measures import Measure
from endtask.evaluate.significance import holm, metric_permutation
from endtask.progress import say
from endtask.task.targets import Answers, from_lists

Tree = dict[str, Any]
_REASON = 80


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
        kind, labels = first["kind"], tuple(first["labels"])
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
        kind = self.measure.kind
        return np.stack([from_lists(answers, kind) for run in self._runs(cell) for answers in run["predicted"]])

    def p_value(self, cell: str, against: str, *, clean: bool = False) -> float:
        """Of the difference, by swapping what both said in each group of rows; `clean`: of those not in train."""
        rows = self.clean if clean else np.ones(len(self.truth), dtype=bool)
        one, other = self.predictions(cell)[:, rows], self.predictions(against)[:, rows]
        return metric_permutation(one, other, self.truth[rows], self.measure, groups=self.groups[rows])

    def over(self, one: str, other: str) -> Tree:
        """How far a cell lies above another, and its p."""
        difference = fmean(self.models(one)) - fmean(self.models(other))
        return {"lead": round(difference, 5), "p": round(self.p_value(one, other), 5)}

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
        for kind, clean in (("", False), ("leak_free_", True)):
            if clean and self.clean.all():
                continue
            found = [self.p_value(row["cell"], other, clean=clean) for row, other in pairs]
            for (row, _), p_value, corrected in zip(pairs, found, holm(found) if found else [], strict=True):
                row |= {f"{kind}p": round(p_value, 5), f"{kind}p_holm": round(corrected, 5)}
        for row, other in pairs:
            row["lead"] = round(row["mean"] - fmean(self.models(other)), 5)

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


def markdown(rows: Sequence[Tree], *, against: str, metric: str) -> str:
    """The rows of `table` as a table; a dagger stands where Holm's p, which counts all rows, is below .05."""
    has_leaks = any("leak_free" in row for row in rows)
    heads = ["", metric, f"against {against}", "p", "Holm's"]
    heads += ["leak-free", "p", "Holm's"] if has_leaks else []
    heads += ["models", "FLOPs", "training"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for row in rows:
        cells = [row["title"], f"{100 * row['mean']:.1f} ± {100 * row['std']:.1f}"]
        cells += [lead(row) if "lead" in row else "", _told(row, "p", "{:.4f}"), _told(row, "p_holm", "{:.4f}")]
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
    return f"{100 * row['lead']:+.1f}{'†' if row['p_holm'] < 0.05 else ''}"


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
