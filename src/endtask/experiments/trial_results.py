"""The results of trials: predictions on the same rows, dev scores and cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.evaluation.baselines import Baseline
from endtask.evaluation.predictions import read_predictions
from endtask.evaluation.task_metrics import Measure
from endtask.experiments.trial_runs import TRAINING_STAGES
from endtask.experiments.variants import Trial
from endtask.io.parsing import read_json
from endtask.io.run_layout import DEV_PREDICTIONS
from endtask.io.stage_files import checked
from endtask.reporting.costs import corpus_text, stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import seed_rows
from endtask.task import Task, leaked_ids
from endtask.task.split import group_numbers
from endtask.task.targets import Answers, from_lists, targets

SplitName = Literal["test", "dev"]


@dataclass(frozen=True)
class EvaluationSet:
    """The rows that variants are scored on: a split, its labels, which rows are leak-free, and their groups.

    Rows of a group, such as rows about the same sentence, are permuted and resampled together.
    """

    split: str
    measure: Measure
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    truth: Answers
    leak_free: NDArray[np.bool_]
    groups: NDArray[np.int64]

    @classmethod
    def of(cls, task: Task, measure: Measure, by: SplitName) -> EvaluationSet:
        """Return the rows of test, or of dev if requested or if there is no test split."""
        split = "test" if by == "test" and "test" in task.splits else "dev"
        examples, leaked = task.splits[split], leaked_ids(task, split)
        ids = tuple(example.id for example in examples)
        leak_free = np.asarray([row_id not in leaked for row_id in ids])
        return cls(split, measure, task.all_labels, ids, targets(task, split), leak_free, group_numbers(examples))

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.measure.name

    @property
    def has_leaks(self) -> bool:
        """Whether some of the rows, but not all, are in train too."""
        return bool(self.leak_free.any() and not self.leak_free.all())

    @property
    def group_count(self) -> int:
        """The number of groups of rows."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class Cost:
    """The cost of a run, with reused stages; FLOPs by the papers' 6ND and as the sum over all matrix products."""

    flops: float
    matmul_flops: float
    train_seconds: float
    seconds: float
    text_bytes: int
    parameters: int | None


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial: for each fine-tuning seed the dev score and the predictions (seeds, rows, ...)."""

    seed: int | None
    finetune_seeds: tuple[int, ...]
    dev: tuple[float, ...]
    predicted: Answers
    cost: Cost


def read_trial(trial: Trial, rows: EvaluationSet, by: SplitName) -> TrialResult | None:
    """Return the result of a trial, or None if it is not scored yet."""
    return read_run(trial.folder, trial.seed, rows, by) if trial.folder.is_dir() else None


def read_run(path: Path, seed: int, rows: EvaluationSet, by: SplitName) -> TrialResult | None:
    """Return the result of a run with this pre-training seed, or None if it is not scored yet."""
    folder = RunFolder(path)
    if ("evaluate" if by == "test" else "finetune") not in folder.manifests:
        return None
    scores = seed_rows(folder)
    seeds = tuple(row.seed for row in scores)
    kind = rows.measure.type
    predicted = _dev_predictions(path, seeds, kind) if by == "dev" else _predictions(path, rows)
    return TrialResult(seed, seeds, tuple(row.dev for row in scores), predicted, _cost(folder))


def baseline_result(baseline: Baseline) -> TrialResult:
    """Return an untrained baseline as a single trial; it reads no corpus."""
    cost = Cost(0.0, 0.0, baseline.seconds, baseline.seconds, 0, None)
    return TrialResult(None, (0,), (baseline.dev_score,), baseline.predicted[None], cost)


def _predictions(path: Path, rows: EvaluationSet) -> Answers:
    stored = read_predictions(path / "evaluate", rows.labels, rows.measure.type)
    if stored.ids != rows.ids or not np.array_equal(stored.truth, rows.truth):
        raise InputError(f"these are not the {rows.split} rows of the other variants", path=path)
    return stored.predicted


def _dev_predictions(folder: Path, seeds: tuple[int, ...], kind: str) -> Answers:
    files = [folder / "finetune" / f"seed-{seed}" / DEV_PREDICTIONS for seed in seeds]
    missing = next((file for file in files if not file.exists()), None)
    if missing is not None:
        raise InputError("no dev predictions", path=missing, hint="choose another --output")
    return np.stack([from_lists(read_json(checked(file)), kind) for file in files])


def _cost(run: RunFolder) -> Cost:
    costs = stage_costs(run)
    total = total_cost(costs)
    return Cost(
        flops=total["flops"],
        matmul_flops=total["matmul_flops"],
        train_seconds=sum(cost.seconds for cost in costs if cost.stage in TRAINING_STAGES),
        seconds=total["seconds"],
        text_bytes=corpus_text(run.counts("select")),
        parameters=int(run.counts("pretrain")["parameters"]),
    )
