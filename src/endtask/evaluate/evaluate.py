"""The evaluate stage: test scores of every seed at its best dev epoch, the leak-free part beside them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluate.metrics import score_all
from endtask.evaluate.probabilities import class_probabilities
from endtask.files.atomic import write_json, write_text
from endtask.files.run_layout import PREDICTIONS, RESULTS
from endtask.models.network import Network
from endtask.models.place import Place
from endtask.models.weights import load_weights
from endtask.settings import Settings
from endtask.task import Task, leaked_ids
from endtask.text.packed import PackedTexts


def evaluate(
    task: Task,
    packed: Path,
    weights: dict[int, Path],
    network: Network,
    settings: Settings,
    folder: Path,
    place: Place,
) -> dict[str, Any]:
    """Score each seed's weights on test (dev where there is no test split); writes results and predictions."""
    split = "test" if "test" in task.splits else "dev"
    probabilities = {}
    for seed, path in weights.items():
        load_weights(path, network)
        probabilities[seed] = class_probabilities(
            network,
            PackedTexts(packed / split),
            batch_size=settings.evaluate.batch_size,
            place=place,
        )
    results = score_seeds(task, split, probabilities, settings.evaluate.metric)
    write_json(folder / RESULTS, results)
    write_text(folder / PREDICTIONS, _prediction_lines(task, split, probabilities))
    return {
        "split": split,
        "rows": results["rows"],
        "leak_free_rows": results["leak_free_rows"],
        **results["summary"],
    }


def score_seeds(task: Task, split: str, probabilities: dict[int, NDArray[np.float32]], metric: str) -> dict[str, Any]:
    """Scores per seed on the whole split and on the rows that do not also stand in train, with mean and spread."""
    examples = task.splits[split]
    truth = np.asarray(task.label_numbers(split))
    leaked = leaked_ids(task, split)
    clean = np.asarray([example.id not in leaked for example in examples], dtype=bool)
    seeds = []
    for seed, table in probabilities.items():
        predicted = table.argmax(-1)
        row: dict[str, Any] = {"seed": seed, "scores": score_all(truth, predicted)}
        if clean.any():
            row["leak_free_scores"] = score_all(truth[clean], predicted[clean])
        seeds.append(row)
    summary = {"metric": metric, **mean_and_spread("", [row["scores"][metric] for row in seeds])}
    if clean.any():
        summary |= mean_and_spread("leak_free_", [row["leak_free_scores"][metric] for row in seeds])
    return {
        "split": split,
        "rows": len(examples),
        "leak_free_rows": int(clean.sum()),
        "summary": summary,
        "seeds": seeds,
    }


def mean_and_spread(prefix: str, values: list[float]) -> dict[str, float]:
    """Mean and sample standard deviation (0 for a single value)."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {f"{prefix}mean": statistics.fmean(values), f"{prefix}std": spread}


def _prediction_lines(task: Task, split: str, probabilities: dict[int, NDArray[np.float32]]) -> str:
    lines = []
    for index, example in enumerate(task.splits[split]):
        by_seed = {seed: task.labels[int(table[index].argmax())] for seed, table in probabilities.items()}
        lines.append(json.dumps({"id": example.id, "label": example.label, "predicted": by_seed}, ensure_ascii=False))
    return "\n".join(lines) + "\n"
