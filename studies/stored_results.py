"""Store results files of `endtask compare` and test them together: variants of several comparisons share a table.

Each file holds the true answers and all predictions. Paired tests between variants of different files are valid if the
scored rows are the same; files with other rows raise `InputError`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from endtask.errors import InputError, did_you_mean
from endtask.evaluation.significance import bootstrap_interval, holm, metric_permutation
from endtask.evaluation.task_metrics import Measure
from endtask.io.atomic import atomic_file
from endtask.task.targets import Answers, from_lists

Tree = dict[str, Any]
PACKED, CURVES = ".json.gz", ".curves.json.gz"
_SAME = ("metric", "split", "truth", "leak_free", "row_groups")
_FORMER_TYPES = {"score": "regression", "labels": "multilabel", "tags": "token_classification"}


def read_tree(file: Path) -> Any:
    """Return a results file, or the rows of a curves file, packed or not; stored files call variants cells."""
    try:
        content = file.read_bytes()
        tree = json.loads(gzip.decompress(content) if file.name.endswith(PACKED) else content)
        if isinstance(tree, dict) and "trials" in tree:
            tree["runs"] = [{**trial, "cell": trial["variant"]} for trial in tree.pop("trials")]
        assert isinstance(tree["runs"] if isinstance(tree, dict) else tree, list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        raise InputError("not a results file of `endtask compare --results`", path=file) from None
    return tree


def store(files: Sequence[Path], folder: Path) -> None:
    """Pack results files into a folder; a run in an old and a new file is stored as in the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    # Reads all before it writes any.
    names = [file.name.removesuffix(".gz").removesuffix(".json") for file in files]
    trees = {folder / f"{name}{PACKED}": read_tree(file) for name, file in zip(names, files, strict=True)}
    for target, tree in trees.items():
        if target.exists():
            old = read_tree(target)
            if isinstance(tree, dict):
                _check_same_rows(old, tree, target)
                tree["runs"] = _union(old["runs"], tree["runs"])
            else:
                tree = _union(old, tree)
        with atomic_file(target) as partial:
            partial.write_bytes(gzip.compress(json.dumps(tree, separators=(",", ":")).encode(), mtime=0))


def stored_files(folder: Path, start: str) -> list[Path]:
    """Return the results files of a task: START.json.gz and START-ANYTHING.json.gz."""
    files = [*folder.glob(f"{start}{PACKED}"), *folder.glob(f"{start}-*{PACKED}")]
    return sorted(file for file in files if not file.name.endswith(CURVES))


def curve_rows(files: Sequence[Path], compared: Compared) -> list[Tree]:
    """Return the rows of the curves files next to results files, for the runs that have a score."""
    rows: list[Tree] = []
    for file in files:
        curves = file.with_name(file.name.removesuffix(PACKED) + CURVES)
        rows = _union(read_tree(curves), rows) if curves.exists() else rows  # a run in two files: the first counts
    scored = {(name, run["seed"]) for name, runs in compared.runs.items() for run in runs}
    return [row for row in rows if (row["cell"], row["seed"]) in scored]


def _check_same_rows(first: Tree, other: Tree, file: Path) -> None:
    for key in _SAME:
        if first.get(key) != other.get(key):
            raise InputError(f"scored with another {key} than the files before it", path=file, key=key)


def _union(old: list[Tree], new: list[Tree]) -> list[Tree]:
    def key(row: Tree) -> tuple[Any, ...]:
        return row["cell"], row["seed"], row.get("finetune_seed")

    return [*({key(row): row for row in old} | {key(row): row for row in new}).values()]


@dataclass(frozen=True)
class Compared:
    """The runs of all files by variant, and the scored rows."""

    measure: Measure
    split: str
    truth: Answers
    clean: np.ndarray
    groups: np.ndarray
    runs: Mapping[str, list[Tree]]
    gpu: str | None

    @classmethod
    def read(cls, files: Sequence[Path]) -> Compared:
        """Read results files; the seeds of a variant may come from several files."""
        trees = [read_tree(file) for file in files]
        first = trees[0]
        runs: dict[str, list[Tree]] = {}
        for file, tree in zip(files, trees, strict=True):
            _check_same_rows(first, tree, file)
            for run in tree["runs"]:
                known = runs.setdefault(run["cell"], [])
                if run["seed"] not in (other["seed"] for other in known):
                    known.append(run)
        stored_type = str(first.get("type", first.get("kind", "text")))
        task_type = _FORMER_TYPES.get(stored_type, stored_type)
        truth = from_lists(first["truth"], task_type)
        return cls(
            Measure(first["metric"], task_type, tuple(first["labels"])),
            first["split"],
            truth,
            np.asarray(first["leak_free"], dtype=bool),
            np.asarray(first.get("row_groups", range(len(truth))), dtype=np.int64),
            runs,
            next(iter((first.get("machine") or {}).get("gpus") or ()), None),
        )

    def models(self, variant: str, part: str | None = None) -> list[float]:
        """Return the scores of all models of a variant on the compared split, or on another `part`."""
        return [score for run in self._runs(variant) for score in run[part or self.split]]

    def predictions(self, variant: str) -> Answers:
        """Return predictions, (models, rows, ...)."""
        answers = (lists for run in self._runs(variant) for lists in run["predicted"])
        return np.stack([from_lists(lists, self.measure.type) for lists in answers])

    def p_value(self, variant: str, against: str, *, clean: bool = False) -> float:
        """Return p of the difference by permutation of groups of rows; with `clean`, of rows that are not in train."""
        rows = self.clean if clean else np.ones(len(self.truth), dtype=bool)
        first, second = self.predictions(variant)[:, rows], self.predictions(against)[:, rows]
        return metric_permutation(first, second, self.truth[rows], self.measure, groups=self.groups[rows])

    def interval(self, variant: str, against: str) -> tuple[float, float]:
        """Return the 95% interval of the difference over other rows and other seeds."""
        first, second = self._by_seed(variant), self._by_seed(against)
        seeds = [[run["seed"] for run in self._runs(name)] for name in (variant, against)]
        paired = seeds[0] == seeds[1] and first.shape == second.shape
        return bootstrap_interval(first, second, self.truth, self.measure, groups=self.groups, paired_runs=paired)

    def _by_seed(self, variant: str) -> Answers:
        """Return predictions, (pre-training seeds, models of each, rows, ...)."""
        return self.predictions(variant).reshape(len(self._runs(variant)), -1, *self.truth.shape)

    def over(self, variant: str, against: str) -> Tree:
        """Return the difference of two variants, its interval and p, and difference and p on rows not in train."""
        difference = fmean(self.models(variant)) - fmean(self.models(against))
        interval = [round(end, 5) for end in self.interval(variant, against)]
        row: Tree = {"lead": round(difference, 5), "interval": interval, "p": round(self.p_value(variant, against), 5)}
        if not self.clean.all():
            scores, others = (self.models(name, "leak_free") for name in (variant, against))
            if scores and others:
                row["leak_free_lead"] = round(fmean(scores) - fmean(others), 5)
            row["leak_free_p"] = round(self.p_value(variant, against, clean=True), 5)
        return row

    def table(self, titles: Mapping[str, str], against: str | None) -> list[Tree]:
        """Return a row for each trained variant, with Holm's p over all of them.

        Each is tested against the variant `against`, or the row before (None).
        """
        rows = [self._row(name, title) for name, title in titles.items() if name in self.runs]
        if against is None:
            tests = [(row, before["cell"]) for before, row in pairwise(rows)]
        else:
            tests = [(row, against) for row in rows if row["cell"] != against and against in self.runs]
        for row, reference in tests:
            row |= self.over(row["cell"], reference)
        add_holm([row for row, _ in tests])
        return rows

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

    def run_rows(self) -> list[Tree]:
        """Return every run without its predictions."""
        runs = (run for runs in self.runs.values() for run in runs)
        return [{key: value for key, value in run.items() if key != "predicted"} for run in runs]

    def _runs(self, variant: str) -> list[Tree]:
        if variant not in self.runs:
            raise InputError(f"no variant is named {variant!r}", hint=did_you_mean(variant, self.runs))
        return self.runs[variant]


def add_holm(rows: Sequence[Tree]) -> None:
    """Add Holm's p, corrected over all of these rows, to rows with a p."""
    for name in ("p", "leak_free_p"):
        tested = [row for row in rows if name in row]
        for row, corrected in zip(tested, holm([row[name] for row in tested]), strict=True):
            row[f"{name}_holm"] = round(corrected, 5)
