"""A run's results as one small JSON file: scores, predictions and cost, without weights and texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.evaluation.predictions import read_predictions
from endtask.io.atomic import write_text
from endtask.io.digests import fingerprint
from endtask.io.run_layout import DEV_PREDICTIONS
from endtask.io.stage_folder import own_version
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import metric_of
from endtask.task import Task, leaked_ids
from endtask.task.targets import as_lists, targets
from endtask.task.task import example_of

FORMAT = 1
# Settings that do not affect the results.
_LEFT_OUT = ("output_dir", "report_to")
_OF_A_STAGE = ("fingerprint", "seconds", "joules", "gpu_bytes", "counts", "finished", "versions", "machine")

Tree = dict[str, Any]


def results_of(folder: str | Path) -> Tree:
    """Return the results of a run as plain values; unfinished parts are null.

    `predictions` contains, for dev and test, the truth and each seed's predictions: class indices (into `labels`),
    scores, 0 or 1 for each label, or the indices of a row's tags; whether each row is leak-free; and a hash of the row
    ids, which shows whether two runs predicted the same rows.
    """
    run = RunFolder(Path(folder))
    task = stored_task(run)
    return {
        "format": FORMAT,
        "endtask": own_version(),
        "task": run.task_name,
        "type": task.type if task else None,
        "labels": list(task.all_labels) if task else None,
        "metric": metric_of(run),
        "settings": {key: value for key, value in run.settings.items() if key not in _LEFT_OUT},
        "stages": {
            stage: {key: manifest[key] for key in _OF_A_STAGE if key in manifest}
            for stage, manifest in run.manifests.items()
        },
        "cost": total_cost(stage_costs(run)),
        "dev": run.counts("finetune").get("seeds"),
        "test": run.results,
        "predictions": {
            split: found for split in ("dev", "test") if task and (found := _predictions(run, task, split))
        },
    }


def write_results(file: Path, folder: Path) -> None:
    """Write the results of a run to a file, replacing an older one."""
    write_text(file, json.dumps(results_of(folder), ensure_ascii=False, allow_nan=False) + "\n")


def check_results_file(file: Path) -> None:
    """Raise `InputError` before hours of training if the file cannot be written."""
    if file.is_dir():
        raise InputError("is a folder, not a file", path=file, hint="--results results.json")
    if not file.absolute().parent.is_dir():
        raise InputError("no such folder", path=file.parent, hint="make it first")


def stored_task(run: RunFolder) -> Task | None:
    """Return the task that the read stage stored."""
    if run.audit is None or "read" not in run.manifests:
        return None
    auxiliary = {name: _read_stored(run, audit, name) for name, audit in run.auxiliary_audits.items()}
    return replace(_read_stored(run, run.audit), auxiliary=auxiliary)


def _read_stored(run: RunFolder, audit: Tree, auxiliary: str | None = None) -> Task:
    splits = {split: [example_of(row) for row in run.examples(split, auxiliary)] for split in audit["splits"]}
    return Task.from_examples(str(audit["name"]), splits, task_type=audit["type"], test_fraction=0)


def _predictions(run: RunFolder, task: Task, split: str) -> Tree | None:
    by_seed = _of_dev(run) if split == "dev" else _of_test(run, task)
    if not by_seed or split not in task.splits:
        return None
    leaked = leaked_ids(task, split)
    return {
        "rows": fingerprint([example.id for example in task.splits[split]]),
        "truth": as_lists(targets(task, split), task.type),
        "leak_free": [int(example.id not in leaked) for example in task.splits[split]],
        "predicted": by_seed,
    }


def _of_dev(run: RunFolder) -> dict[str, list[Any]]:
    """Return the dev predictions by seed."""
    seeds = [row["seed"] for row in run.counts("finetune").get("seeds", [])]
    files = {str(seed): run.path / "finetune" / f"seed-{seed}" / DEV_PREDICTIONS for seed in seeds}
    return {seed: json.loads(file.read_text(encoding="utf-8")) for seed, file in files.items() if file.exists()}


def _of_test(run: RunFolder, task: Task) -> dict[str, list[Any]]:
    if run.results is None or run.results["split"] != "test":
        return {}
    found = read_predictions(run.path / "evaluate", task.all_labels, task.type)
    return {str(seed): as_lists(row, task.type) for seed, row in zip(found.seeds, found.predicted, strict=True)}
