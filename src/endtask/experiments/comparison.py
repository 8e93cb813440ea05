"""The result of a comparison: for each variant its scores, how sure they are, how they differ, and their cost."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from endtask.evaluation.task_metrics import measure_of, score_runs
from endtask.experiments.baselines import compute_baseline, stored_baseline
from endtask.experiments.record import Record
from endtask.experiments.statistics import (
    LEVEL,
    PERMUTATIONS,
    PairedTests,
    Score,
    holm_corrected,
    untested_scores,
)
from endtask.experiments.trial_results import Cost, EvaluationSet, TrialResult, baseline_result, read_trial
from endtask.experiments.trial_runs import TrialRuns
from endtask.experiments.variants import Variant, only_finetunes_checkpoint
from endtask.io.atomic import write_text
from endtask.io.machine import describe_machine
from endtask.io.stage_folder import versions
from endtask.task.targets import as_lists

FORMAT = 2

Tree = dict[str, Any]
Results = Mapping[str, tuple[TrialResult, ...]]


@dataclass(frozen=True)
class TableRow:
    """A variant in a table; without `score` it has none yet, or all of its trials failed.

    `models` counts pre-training times fine-tuning seeds. `tokenizer` is a digest of the tokenizer that it learned.
    """

    name: str
    title: str
    is_baseline: bool
    changes: Tree
    note: str
    models: int = 0
    score: Score | None = None
    leak_free: Score | None = None
    dev: Score | None = None
    cost: Cost | None = None
    failures: tuple[str, ...] = ()
    is_pretrained: bool = True
    tokenizer: str | None = None


@dataclass(frozen=True)
class ResultTable:
    """Variants in order, tested against one of them; Holm's correction holds for all tests of the table."""

    name: str
    title: str
    against: str
    rows: tuple[TableRow, ...]

    def row(self, name: str) -> TableRow:
        """Return the row of a variant."""
        return next(row for row in self.rows if row.name == name)

    @property
    def reference(self) -> TableRow:
        """The row that the others are tested against."""
        return self.row(self.against)


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison so far: its tables and the trials behind them by variant.

    `missing` names the trials and baselines that have no score and may still get one.
    """

    folder: Path
    evaluation: EvaluationSet
    tables: tuple[ResultTable, ...]
    trials: Results
    is_tested: bool
    missing: tuple[str, ...] = ()
    failures: tuple[str, ...] = field(default=())

    @property
    def against(self) -> str:
        """The variant that the first table tests against."""
        return self.tables[0].against

    @property
    def rows(self) -> tuple[TableRow, ...]:
        """The rows of the first table."""
        return self.tables[0].rows

    def row(self, name: str) -> TableRow:
        """Return a variant's row in the first table that has it."""
        return next(row for table in self.tables for row in table.rows if row.name == name)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do; failed trials count as done."""
        return self.is_tested and not self.missing

    @property
    def has_trained_trials(self) -> bool:
        """Whether some trial has a score; untrained baselines do not count."""
        return any(trial.seed is not None for trials in self.trials.values() for trial in trials)

    def has_one_seed(self, table: ResultTable, name: str) -> bool:
        """Return whether a variant, or the one it is tested against, was trained only once."""
        return any(self._is_trained_once(table.row(each)) for each in (name, table.against))

    def _is_trained_once(self, row: TableRow) -> bool:
        trained = [trial for trial in self.trials[row.name] if trial.seed is not None]
        times = len(trained) if row.is_pretrained else sum(len(trial.finetune_seeds) for trial in trained)
        return times == 1  # untrained baselines: 0, and no chance in them

    def to_dict(self) -> Tree:
        """Return plain values for JSON."""
        rows = self.evaluation
        return {
            "folder": str(self.folder),
            "complete": self.is_complete,
            "missing": list(self.missing),
            "split": rows.split,
            "metric": rows.metric,
            "examples": len(rows.ids),
            "groups": rows.group_count,
            "leak_free_examples": int(rows.leak_free.sum()),
            "against": self.against,
            "permutations": PERMUTATIONS,
            "level": LEVEL,
            "rows": [asdict(row) for row in self.rows],
            "tables": [asdict(table) for table in self.tables if table.name],
        }


def read_results(
    runs: TrialRuns, record: Record, by: Literal["test", "dev"], *, tested: bool, compute: bool = True
) -> ComparisonResult:
    """Return the tables of all trials that have a score; with intervals and tests if `tested`, which take a while.

    Untrained baselines that no earlier call computed are left out unless `compute`.
    """
    plan, task = runs.plan, runs.task
    rows = EvaluationSet.of(task, measure_of(task, plan.settings.evaluate), by)
    found: dict[str, TableRow] = {}
    trials: dict[str, tuple[TrialResult, ...]] = {}
    for variant in plan.variants:
        results = (read_trial(trial, rows, by) for trial in variant.trials(runs.folder))
        trials[variant.name] = tuple(result for result in results if result is not None)
        found[variant.name] = _row_of(variant, runs, record, trials[variant.name])
    find = compute_baseline if compute else stored_baseline
    for name in plan.untrained:
        baseline = find(name, task, rows.measure, runs.folder, by)
        if baseline is not None:
            trials[name] = (baseline_result(baseline),)
            found[name] = TableRow(name, name, True, {}, baseline.description)
    found = {name: _with_scores(row, trials[name], rows) for name, row in found.items()}
    tables = []
    for name, table in plan.tables.items():
        chosen = [found[each] for each in table.variants if each in found]
        if tested:
            chosen = _with_tests(chosen, trials, PairedTests(rows, trials[table.against or ""], PERMUTATIONS))
        tables.append(ResultTable(name, table.title, table.against or "", tuple(chosen)))
    failures = tuple(failure for row in found.values() for failure in row.failures)
    return ComparisonResult(runs.folder, rows, tuple(tables), trials, tested, _missing(runs, record, trials), failures)


def _row_of(variant: Variant, runs: TrialRuns, record: Record, done: tuple[TrialResult, ...]) -> TableRow:
    changes = dict(variant.changes) or variant.difference_from(runs.plan.settings)
    return TableRow(
        variant.name,
        variant.title or variant.name,
        variant.is_baseline,
        changes,
        variant.note,
        failures=_failures(variant, runs, record, done),
        is_pretrained=not only_finetunes_checkpoint(variant.settings),
        tokenizer=variant.learned_tokenizer(runs.folder),
    )


def _failures(variant: Variant, runs: TrialRuns, record: Record, done: tuple[TrialResult, ...]) -> tuple[str, ...]:
    """Return why trials failed, except those with a score: the user may have run them again."""
    seeds = {result.seed for result in done}
    left = [trial.key for trial in variant.trials(runs.folder) if trial.seed not in seeds]
    return tuple(record.trials[key]["failure"] for key in left if key in record.trials)


def _missing(runs: TrialRuns, record: Record, trials: Results) -> tuple[str, ...]:
    """Return what has no score and may still get one, trials in the order in which they are trained."""
    scored = {(name, result.seed) for name, results in trials.items() for result in results}
    left = [
        trial.key
        for trial in runs.trials
        if (trial.variant.name, trial.seed) not in scored and trial.key not in record.trials
    ]
    return (*left, *(name for name in runs.plan.untrained if name not in trials))


def _with_scores(row: TableRow, trials: Sequence[TrialResult], rows: EvaluationSet) -> TableRow:
    """Return the row with everything that needs no test."""
    if not trials:
        return row
    score, leak_free = untested_scores(trials, rows)
    return replace(
        row,
        models=sum(len(trial.predicted) for trial in trials),
        score=score,
        leak_free=leak_free,
        dev=Score.of([score for trial in trials for score in trial.dev]),
        cost=_mean_cost([trial.cost for trial in trials]),
    )


def _with_tests(rows: Sequence[TableRow], trials: Results, tests: PairedTests) -> list[TableRow]:
    """Return the rows with intervals and tests; p-values hold for the whole table, leak-free ones among themselves."""
    pairs = [tests.scores(trials[row.name]) if row.models else (None, None) for row in rows]
    scores, leak_free = _holm_scores([pair[0] for pair in pairs]), _holm_scores([pair[1] for pair in pairs])
    return [
        replace(row, score=score, leak_free=clean) for row, score, clean in zip(rows, scores, leak_free, strict=True)
    ]


def _holm_scores(scores: Sequence[Score | None]) -> list[Score | None]:
    corrected = holm_corrected([score.difference if score is not None else None for score in scores])
    return [
        score if score is None or difference is None else replace(score, difference=difference)
        for score, difference in zip(scores, corrected, strict=True)
    ]


def _mean_cost(costs: Sequence[Cost]) -> Cost:
    means = {key: statistics.fmean(asdict(cost)[key] for cost in costs) for key in _MEANS}
    return Cost(
        **means,
        text_bytes=round(statistics.fmean(cost.text_bytes for cost in costs)),
        parameters=costs[0].parameters,
    )


_MEANS = ("flops", "matmul_flops", "train_seconds", "seconds")


def results_dict(result: ComparisonResult) -> Tree:
    """Return the values of the tables and the trials behind them with their predictions as class numbers."""
    rows = result.evaluation
    return {
        "format": FORMAT,
        **result.to_dict(),
        "versions": versions(),
        "machine": describe_machine(),
        "labels": list(rows.labels),
        "type": rows.measure.type,
        "truth": as_lists(rows.truth, rows.measure.type),
        "leak_free": rows.leak_free.astype(int).tolist(),
        "row_groups": rows.groups.tolist(),
        "trials": [_trial(name, trial, rows) for name, trials in result.trials.items() for trial in trials],
    }


def write_results(result: ComparisonResult, path: Path) -> None:
    """Write the results on one line: one class number per line would make several hundred thousand lines."""
    write_text(path, json.dumps(results_dict(result), ensure_ascii=False, allow_nan=False) + "\n")


def _trial(name: str, trial: TrialResult, rows: EvaluationSet) -> Tree:
    clean, measure = rows.leak_free, rows.measure
    leak_free = score_runs(trial.predicted[:, clean], rows.truth[clean], measure).tolist() if clean.any() else []
    return {
        "variant": name,
        "seed": trial.seed,
        "finetune_seeds": list(trial.finetune_seeds),
        "dev": list(trial.dev),
        rows.split: score_runs(trial.predicted, rows.truth, measure).tolist(),
        "leak_free": leak_free,
        "cost": asdict(trial.cost),
        "predicted": [as_lists(each, measure.type) for each in trial.predicted],
    }
