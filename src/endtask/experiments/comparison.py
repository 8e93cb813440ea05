"""The result of a comparison: scores, intervals, tested differences and cost of each variant."""

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
_MEAN_COSTS = ("flops", "matmul_flops", "train_seconds", "seconds")

Tree = dict[str, Any]
Results = Mapping[str, tuple[TrialResult, ...]]


@dataclass(frozen=True)
class TableRow:
    """A variant in a table; `score` is None if no trial has a score.

    `models` is the number of pre-training times fine-tuning seeds. `tokenizer` is a digest of the learned tokenizer.
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
    """Variants in order, tested against the reference; Holm's correction is for all tests of the table."""

    name: str
    title: str
    against: str
    rows: tuple[TableRow, ...]

    def row(self, name: str) -> TableRow:
        """Return the row of a variant."""
        return next(row for row in self.rows if row.name == name)

    @property
    def reference(self) -> TableRow:
        """The row of the reference variant."""
        return self.row(self.against)


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison so far: its tables, and the results of its trials by variant.

    `missing` names the trials and baselines that have no score yet and did not fail.
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
        """The reference variant of the first table."""
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
        """Whether all trials are finished or failed, and tested."""
        return self.is_tested and not self.missing

    @property
    def has_trained_trials(self) -> bool:
        """Whether some trial has a score; untrained baselines do not count."""
        return any(trial.seed is not None for trials in self.trials.values() for trial in trials)

    def has_one_seed(self, table: ResultTable, name: str) -> bool:
        """Return whether a variant or its reference was trained only once."""
        return any(self._is_trained_once(table.row(variant)) for variant in (name, table.against))

    def _is_trained_once(self, row: TableRow) -> bool:
        trained = [trial for trial in self.trials[row.name] if trial.seed is not None]
        times = len(trained) if row.is_pretrained else sum(len(trial.finetune_seeds) for trial in trained)
        return times == 1  # 0 for untrained baselines, which are deterministic

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
    """Return the tables of all trials that have a score; if `tested`, with intervals and tests, which are slow.

    Untrained baselines that no earlier call computed are left out unless `compute`.
    """
    plan, task = runs.plan, runs.task
    evaluation = EvaluationSet.of(task, measure_of(task, plan.settings.evaluate), by)
    rows: dict[str, TableRow] = {}
    trials: dict[str, tuple[TrialResult, ...]] = {}
    for variant in plan.variants:
        results = (read_trial(trial, evaluation, by) for trial in variant.trials(runs.folder))
        trials[variant.name] = tuple(result for result in results if result is not None)
        rows[variant.name] = _variant_row(variant, runs, record, trials[variant.name])
    get_baseline = compute_baseline if compute else stored_baseline
    for name in plan.untrained:
        baseline = get_baseline(name, task, evaluation.measure, runs.folder, by)
        if baseline is not None:
            trials[name] = (baseline_result(baseline),)
            rows[name] = TableRow(name, name, True, {}, baseline.description)
    rows = {name: _with_scores(row, trials[name], evaluation) for name, row in rows.items()}
    tables = []
    for name, table in plan.tables.items():
        table_rows = [rows[variant] for variant in table.variants if variant in rows]
        if tested:
            tests = PairedTests(evaluation, trials[table.against or ""], PERMUTATIONS)
            table_rows = _with_tests(table_rows, trials, tests)
        tables.append(ResultTable(name, table.title, table.against or "", tuple(table_rows)))
    failures = tuple(failure for row in rows.values() for failure in row.failures)
    missing = _missing(runs, record, trials)
    return ComparisonResult(runs.folder, evaluation, tuple(tables), trials, tested, missing, failures)


def _variant_row(variant: Variant, runs: TrialRuns, record: Record, results: tuple[TrialResult, ...]) -> TableRow:
    changes = dict(variant.changes) or variant.difference_from(runs.plan.settings)
    return TableRow(
        variant.name,
        variant.title or variant.name,
        variant.is_baseline,
        changes,
        variant.note,
        failures=_failures(variant, runs, record, results),
        is_pretrained=not only_finetunes_checkpoint(variant.settings),
        tokenizer=variant.learned_tokenizer(runs.folder),
    )


def _failures(variant: Variant, runs: TrialRuns, record: Record, results: tuple[TrialResult, ...]) -> tuple[str, ...]:
    """Return why trials failed, except trials with a score: the user may have run them again."""
    scored = {result.seed for result in results}
    unscored = [trial.key for trial in variant.trials(runs.folder) if trial.seed not in scored]
    return tuple(record.trials[key]["failure"] for key in unscored if key in record.trials)


def _missing(runs: TrialRuns, record: Record, trials: Results) -> tuple[str, ...]:
    """Return the trials, in the order of training, and baselines that have no score and did not fail."""
    scored = {(name, result.seed) for name, results in trials.items() for result in results}
    pending = [
        trial.key
        for trial in runs.trials
        if (trial.variant.name, trial.seed) not in scored and trial.key not in record.trials
    ]
    return (*pending, *(name for name in runs.plan.untrained if name not in trials))


def _with_scores(row: TableRow, trials: Sequence[TrialResult], evaluation: EvaluationSet) -> TableRow:
    """Return the row with scores and cost, without intervals and tests."""
    if not trials:
        return row
    score, leak_free = untested_scores(trials, evaluation)
    return replace(
        row,
        models=sum(len(trial.predicted) for trial in trials),
        score=score,
        leak_free=leak_free,
        dev=Score.of([score for trial in trials for score in trial.dev]),
        cost=_mean_cost([trial.cost for trial in trials]),
    )


def _with_tests(rows: Sequence[TableRow], trials: Results, tests: PairedTests) -> list[TableRow]:
    """Return the rows with intervals and tests; scores and leak-free scores have separate Holm corrections."""
    pairs = [tests.scores(trials[row.name]) if row.models else (None, None) for row in rows]
    scores = _holm_scores([score for score, _ in pairs])
    leak_free_scores = _holm_scores([leak_free for _, leak_free in pairs])
    return [
        replace(row, score=score, leak_free=leak_free)
        for row, score, leak_free in zip(rows, scores, leak_free_scores, strict=True)
    ]


def _holm_scores(scores: Sequence[Score | None]) -> list[Score | None]:
    corrected = holm_corrected([score.difference if score is not None else None for score in scores])
    return [
        score if score is None or difference is None else replace(score, difference=difference)
        for score, difference in zip(scores, corrected, strict=True)
    ]


def _mean_cost(costs: Sequence[Cost]) -> Cost:
    means = {key: statistics.fmean(getattr(cost, key) for cost in costs) for key in _MEAN_COSTS}
    return Cost(
        **means,
        text_bytes=round(statistics.fmean(cost.text_bytes for cost in costs)),
        parameters=costs[0].parameters,
    )


def results_dict(result: ComparisonResult) -> Tree:
    """Return the tables as plain values, with all trials and their predictions as class indices."""
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
    """Write the results as JSON on one line; with indentation they would have several hundred thousand lines."""
    write_text(path, json.dumps(results_dict(result), ensure_ascii=False, allow_nan=False) + "\n")


def _trial(name: str, trial: TrialResult, rows: EvaluationSet) -> Tree:
    mask, measure = rows.leak_free, rows.measure
    leak_free = score_runs(trial.predicted[:, mask], rows.truth[mask], measure).tolist() if mask.any() else []
    return {
        "variant": name,
        "seed": trial.seed,
        "finetune_seeds": list(trial.finetune_seeds),
        "dev": list(trial.dev),
        rows.split: score_runs(trial.predicted, rows.truth, measure).tolist(),
        "leak_free": leak_free,
        "cost": asdict(trial.cost),
        "predicted": [as_lists(predicted, measure.type) for predicted in trial.predicted],
    }
