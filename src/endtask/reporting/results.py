"""Write a run's results to a small JSON file: scores, predictions and cost, without weights and texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.evaluation.predictions import read_predictions
from endtask.io.atomic import write_text
from endtask.io.digests import fingerprint
from endtask.io.parsing import read_json
from endtask.io.run_layout import DEV_PREDICTIONS
from endtask.io.stage_folder import package_version
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.scores import metric_of
from endtask.task import Task, leaked_ids
from endtask.task.targets import as_lists, targets
from endtask.task.task import example_of

FORMAT = 1
_UNRELATED_SETTINGS = ("output_dir", "report_to")
_STAGE_KEYS = ("fingerprint", "seconds", "joules", "gpu_bytes", "counts", "finished", "versions", "machine")

Tree = dict[str, Any]


def results_of(folder: str | Path) -> Tree:
    """Return the results of a run as plain values; unfinished parts are null.

    `predictions` contains, for dev and test, the truth and each seed's predictions: class indices (into `labels`),
    scores, 0 or 1 for each label, or the indices of a row's tags; whether each row is leak-free; and a hash of the row
    ids, which is equal if two runs predicted the same rows.
    """
    run = RunFolder(Path(folder))
    task = stored_task(run)
    predictions = {split: _predictions(run, task, split) for split in ("dev", "test")} if task else {}
    return {
        "format": FORMAT,
        "endtask": package_version(),
        "task": run.task_name,
        "type": task.type if task else None,
        "labels": list(task.all_labels) if task else None,
        "metric": metric_of(run),
        "settings": {key: value for key, value in run.settings.items() if key not in _UNRELATED_SETTINGS},
        "stages": {
            stage: {key: manifest[key] for key in _STAGE_KEYS if key in manifest}
            for stage, manifest in run.manifests.items()
        },
        "cost": total_cost(stage_costs(run)),
        "dev": run.counts("finetune").get("seeds"),
        "test": run.results,
        "predictions": {split: tree for split, tree in predictions.items() if tree is not None},
    }


def write_results(file: Path, folder: Path) -> None:
    """Write the results of a run to a file; replace an existing file."""
    write_text(file, json.dumps(results_of(folder), ensure_ascii=False, allow_nan=False) + "\n")


def check_results_file(file: Path) -> None:
    """Raise `InputError` if the file cannot be written, before hours of training."""
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
    by_seed = _dev_predictions(run) if split == "dev" else _test_predictions(run, task)
    if not by_seed or split not in task.splits:
        return None
    leaked = leaked_ids(task, split)
    return {
        "rows": fingerprint([example.id for example in task.splits[split]]),
        "truth": as_lists(targets(task, split), task.type),
        "leak_free": [int(example.id not in leaked) for example in task.splits[split]],
        "predicted": by_seed,
    }


def _dev_predictions(run: RunFolder) -> dict[str, list[Any]]:
    """Return the dev predictions by seed."""
    seeds = [row["seed"] for row in run.counts("finetune").get("seeds", [])]
    files = {str(seed): run.file("finetune", f"seed-{seed}", DEV_PREDICTIONS) for seed in seeds}
    return {seed: read_json(file) for seed, file in files.items() if file.exists()}


def _test_predictions(run: RunFolder, task: Task) -> dict[str, list[Any]]:
    """Return the test predictions by seed."""
    if run.results is None or run.results["split"] != "test":
        return {}
    stored = read_predictions(run.path / "evaluate", task.all_labels, task.type)
    return {str(seed): as_lists(row, task.type) for seed, row in zip(stored.seeds, stored.predicted, strict=True)}
