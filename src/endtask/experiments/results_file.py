"""A comparison as one small JSON file: all that its tables and tests need, without weights and texts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from endtask.evaluation.task_metrics import score_runs
from endtask.experiments.comparison import ComparisonResult
from endtask.experiments.trial_results import EvaluationSet, TrialResult
from endtask.io.atomic import write_text
from endtask.io.machine import describe_machine
from endtask.io.stage_folder import versions
from endtask.task.targets import as_lists

FORMAT = 2

Tree = dict[str, Any]


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
