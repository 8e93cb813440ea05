"""The evaluate stage: test scores of every seed at its best dev epoch, the leak-free part beside them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import EvaluateSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import load_weights
from endtask.evaluation.labels import Outputs, answers_of, perplexity
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.task_metrics import Measure, measure_of
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import PREDICTIONS, RESULTS, SEED_RESULT, TASKS
from endtask.task import Task, leaked_ids
from endtask.task.targets import Answers, targets
from endtask.tokenization.packed_texts import PackedTexts


@dataclass(frozen=True)
class Answered:
    """What a seed's weights said about a split: their outputs, and the answers that follow."""

    answers: Answers
    outputs: Outputs


def evaluate(
    task: Task,
    packed: Path,
    weights: dict[int, Path],
    network: Network,
    settings: Settings,
    folder: Path,
    context: DeviceContext,
    *,
    auxiliary: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Score each seed's weights on test (dev where there is no test split); writes results and predictions.

    `auxiliary` are the results of auxiliary tasks, which stand beside those of the end task.
    """
    split = scored_split(task)
    found: dict[int, Answered] = {}
    for seed, path in weights.items():
        load_weights(path, network)
        threshold = threshold_of(path.with_name(SEED_RESULT), settings.evaluate)
        found[seed] = answer(network, task, packed / split, settings.evaluate, context, threshold=threshold)
    results = score_seeds(task, split, found, measure_of(task, settings.evaluate))
    write_json(folder / RESULTS, {**results, TASKS: auxiliary} if auxiliary else results)
    write_text(folder / PREDICTIONS, prediction_lines(task, split, found))
    of_auxiliary = {TASKS: {name: _counts(one) for name, one in auxiliary.items()}} if auxiliary else {}
    return {**_counts(results), **of_auxiliary}


def scored_split(task: Task) -> str:
    """The split of the final score."""
    return "test" if "test" in task.splits else "dev"


def answer(
    network: Network,
    task: Task,
    texts: Path,
    settings: EvaluateSettings,
    context: DeviceContext,
    *,
    threshold: float = 0.5,
    head: str = TASK,
) -> Answered:
    """What the network says about the packed texts of a split, whose name is that of their folder."""
    outputs = class_probabilities(
        network, PackedTexts(texts), batch_size=settings.batch_size, context=context, head=head
    )
    return Answered(answers_of(task, texts.name, outputs, threshold=threshold), outputs)


def _counts(results: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: results[name] for name in ("split", "rows", "leak_free_rows")}, **results["summary"]}


def threshold_of(result: Path, settings: EvaluateSettings) -> float:
    """The least probability of a label that is given: as set, or as it was tuned on dev with these weights."""
    if settings.threshold != "tuned":
        return settings.threshold
    return float(json.loads(result.read_text(encoding="utf-8")).get("threshold", 0.5))


def score_seeds(
    task: Task, split: str, found: Mapping[int, Answered], measure: Measure, *, siblings: Sequence[Task] = ()
) -> dict[str, Any]:
    """Scores per seed on the whole split and on the rows that do not also stand in train, with mean and spread.

    Where there are several test sets, each has scores of its own, and the mean of these follows.
    `siblings` are tasks that the same encoder learned too.
    """
    examples, metric = task.splits[split], measure.name
    leaked = leaked_ids(task, split, siblings=siblings)
    clean = np.asarray([example.id not in leaked for example in examples], dtype=bool)
    seeds = [_score_seed(task, split, seed, one, measure, clean) for seed, one in found.items()]
    summary = {"metric": metric, **mean_and_spread("", [row["scores"][metric] for row in seeds])}
    if clean.any():
        summary |= mean_and_spread("leak_free_", [row["leak_free_scores"][metric] for row in seeds])
    results = {
        "split": split,
        "rows": len(examples),
        "leak_free_rows": int(clean.sum()),
        "summary": summary,
        "seeds": seeds,
    }
    return {**results, **_test_sets(task, split, found, measure)}


def _score_seed(
    task: Task, split: str, seed: int, found: Answered, measure: Measure, clean: NDArray[np.bool_]
) -> dict[str, Any]:
    truth = targets(task, split)
    row: dict[str, Any] = {"seed": seed, "scores": measure.all_scores(truth, found.answers)}
    surprise = perplexity(task, split, found.outputs)
    if surprise is not None:
        row["scores"]["perplexity"] = surprise
    if clean.any():
        row["leak_free_scores"] = measure.all_scores(truth[clean], found.answers[clean])
    return row


def _test_sets(task: Task, split: str, found: Mapping[int, Answered], measure: Measure) -> dict[str, Any]:
    """Scores of each test set, mean and spread over the seeds, and their mean; nothing where there is one set."""
    parts = np.asarray([example.part or "" for example in task.splits[split]])
    names = sorted(set(parts) - {""})
    if not names:
        return {}
    truth, sets = targets(task, split), {}
    for name in names:
        rows = parts == name
        scores = [measure.score(truth[rows], one.answers[rows]) for one in found.values()]
        sets[name] = {"rows": int(rows.sum()), **mean_and_spread("", scores)}
    return {"test_sets": sets, "mean_of_test_sets": statistics.fmean(one["mean"] for one in sets.values())}


def mean_and_spread(prefix: str, values: list[float]) -> dict[str, float]:
    """Mean and sample standard deviation (0 for a single value)."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {f"{prefix}mean": statistics.fmean(values), f"{prefix}std": spread}


def prediction_lines(task: Task, split: str, found: Mapping[int, Answered]) -> str:
    """What each seed answered, row by row, as JSON lines."""
    by_seed = {seed: task.task_type.to_names(one.answers, task.all_labels) for seed, one in found.items()}
    lines = []
    for index, example in enumerate(task.splits[split]):
        predicted = {seed: answers[index] for seed, answers in by_seed.items()}
        lines.append(json.dumps({"id": example.id, "label": example.label, "predicted": predicted}, ensure_ascii=False))
    return "\n".join(lines) + "\n"
