"""What the runs of a comparison came to: predictions over the same rows, dev scores and cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from endtask.compare.cell import CellRun
from endtask.errors import InputError
from endtask.evaluation.baselines import Baseline
from endtask.evaluation.predictions import Predictions, read_predictions
from endtask.evaluation.task_metrics import Measure
from endtask.io.digests import fingerprint
from endtask.io.run_layout import DEV_PREDICTIONS
from endtask.reporting.costs import corpus_text, stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import seed_rows
from endtask.task import Task, leaked_ids
from endtask.task.split import group_numbers
from endtask.task.targets import Answers, from_lists, targets

TRAINING = ("pretrain", "finetune")


@dataclass(frozen=True)
class Judged:
    """The rows that decide: a split, its right answers, which rows are not in train too, and which belong together.

    Rows of one of the `groups`, such as questions about one sentence, are swapped and drawn together.
    """

    split: str
    measure: Measure
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    truth: Answers
    clean: NDArray[np.bool_]
    groups: NDArray[np.int64]

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.measure.name

    @classmethod
    def of(cls, task: Task, measure: Measure, by: Literal["test", "dev"]) -> Judged:
        """The rows of test, or of dev if asked for or where there is no test split."""
        split = "test" if by == "test" and "test" in task.splits else "dev"
        examples, leaked = task.splits[split], leaked_ids(task, split)
        ids = tuple(example.id for example in examples)
        clean = np.asarray([each not in leaked for each in ids])
        return cls(split, measure, task.all_labels, ids, targets(task, split), clean, group_numbers(examples))

    @property
    def has_leaks(self) -> bool:
        """Whether the leak-free part is there and is not the whole."""
        return bool(self.clean.any() and not self.clean.all())

    @property
    def group_count(self) -> int:
        """How many groups the rows form."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class Cost:
    """What one run costs alone, shared stages included; FLOPs by the papers' 6ND and counted product by product."""

    flops: float
    matmul_flops: float
    train_seconds: float
    seconds: float
    text_bytes: int
    parameters: int | None


@dataclass(frozen=True)
class Scored:
    """One run of one cell: for each fine-tuning seed the dev score and the answers (seeds, rows, ...)."""

    seed: int | None
    finetune_seeds: tuple[int, ...]
    dev: tuple[float, ...]
    predicted: Answers
    cost: Cost

    def mark(self) -> str:
        """A hash of the predictions."""
        return fingerprint(self.predicted.shape, self.predicted.tobytes().hex())


def read_run(run: CellRun, judged: Judged, by: Literal["test", "dev"]) -> Scored | None:
    """What a run came to, or None where it has not got so far."""
    folder = RunFolder(run.folder) if run.folder.is_dir() else None
    if folder is None or ("evaluate" if by == "test" else "finetune") not in folder.manifests:
        return None
    rows = seed_rows(folder)
    seeds = tuple(row.seed for row in rows)
    predicted = _dev_predictions(run.folder, seeds, judged.measure.type) if by == "dev" else _predictions(run, judged)
    return Scored(run.seed, seeds, tuple(row.dev for row in rows), predicted, _cost(folder))


def scored_baseline(baseline: Baseline) -> Scored:
    """An untrained baseline as a single run; it reads no corpus."""
    cost = Cost(0.0, 0.0, baseline.seconds, baseline.seconds, 0, None)
    return Scored(None, (0,), (baseline.dev_score,), baseline.predicted[None], cost)


def _predictions(run: CellRun, judged: Judged) -> Answers:
    found = read_predictions(run.folder / "evaluate", judged.labels, judged.measure.type)
    refuse_other_rows(found, judged, run.folder)
    return found.predicted


def refuse_other_rows(found: Predictions, judged: Judged, folder: Path) -> None:
    """Refuse predictions of other rows: nothing could be paired."""
    if found.ids != judged.ids or not np.array_equal(found.truth, judged.truth):
        raise InputError(f"these are not the {judged.split} rows of the other cells", path=folder)


def _dev_predictions(folder: Path, seeds: tuple[int, ...], type_name: str) -> Answers:
    files = [folder / "finetune" / f"seed-{seed}" / DEV_PREDICTIONS for seed in seeds]
    absent = next((file for file in files if not file.exists()), None)
    if absent is not None:
        hint = "runs of older releases did not keep them; choose another --output"
        raise InputError("no dev predictions", path=absent, hint=hint)
    return np.stack([from_lists(json.loads(file.read_text(encoding="utf-8")), type_name) for file in files])


def _cost(run: RunFolder) -> Cost:
    costs = stage_costs(run)
    total = total_cost(costs)
    return Cost(
        flops=total["flops"],
        matmul_flops=total["matmul_flops"],
        train_seconds=sum(cost.seconds for cost in costs if cost.stage in TRAINING),
        seconds=total["seconds"],
        text_bytes=corpus_text(run.counts("select")),
        parameters=int(run.counts("pretrain")["parameters"]),
    )
