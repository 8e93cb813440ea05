"""A comparison as one small JSON file: all that its table and its tests need, and no weights and no texts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from endtask.compare.outcome import Outcome
from endtask.compare.scored import Scored
from endtask.evaluation.task_metrics import score_runs
from endtask.io.atomic import write_text
from endtask.io.machine import describe_machine
from endtask.io.stage_folder import versions
from endtask.task.targets import as_lists

FORMAT = 1

Tree = dict[str, Any]


def results_of_comparison(outcome: Outcome) -> Tree:
    """The figures of the table, and the runs behind them with their predictions as class numbers."""
    judged = outcome.judged
    return {
        "format": FORMAT,
        **outcome.statistics(),
        "versions": versions(),
        "machine": describe_machine(),
        "labels": list(judged.labels),
        "type": judged.measure.type,
        "truth": as_lists(judged.truth, judged.measure.type),
        "leak_free": judged.clean.astype(int).tolist(),
        "row_groups": judged.groups.tolist(),
        "runs": [_run(name, run, outcome) for name, runs in outcome.runs.items() for run in runs],
    }


def write_results(outcome: Outcome, path: Path) -> None:
    """Write the results on one line: a class number a line would make a file of a few hundred thousand lines."""
    write_text(path, json.dumps(results_of_comparison(outcome), ensure_ascii=False, allow_nan=False) + "\n")


def _run(name: str, run: Scored, outcome: Outcome) -> Tree:
    judged = outcome.judged
    clean, metric = judged.clean, judged.measure
    return {
        "cell": name,
        "seed": run.seed,
        "finetune_seeds": list(run.finetune_seeds),
        "dev": list(run.dev),
        judged.split: score_runs(run.predicted, judged.truth, metric).tolist(),
        "leak_free": score_runs(run.predicted[:, clean], judged.truth[clean], metric).tolist() if clean.any() else [],
        "cost": asdict(run.cost),
        "predicted": [as_lists(answers, metric.type) for answers in run.predicted],
    }
