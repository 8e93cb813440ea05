"""The evaluate stage: test scores of every seed at its best dev epoch, on all rows and on the leak-free rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import EvaluateSettings, Settings
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TASK, Network, auxiliary_head
from endtask.encoders.weights import load_weights
from endtask.evaluation.baselines import scored_split
from endtask.evaluation.evidence import Evaluated, split_predictions, write_evidence
from endtask.evaluation.outputs import Answered, answers_of, best_threshold, perplexity
from endtask.evaluation.prediction_table import write_prediction_table
from endtask.evaluation.probabilities import class_probabilities
from endtask.evaluation.run_baselines import compare_with_baselines
from endtask.evaluation.task_metrics import Measure, measure_of
from endtask.io.atomic import write_json, write_text
from endtask.io.parsing import read_json
from endtask.io.run_layout import PREDICTION_TABLE, PREDICTIONS, RESULTS, SEED_RESULT, TASKS
from endtask.task import Task, leaked_ids
from endtask.task.leaks import sibling_tasks
from endtask.task.targets import targets
from endtask.tokenization.packed_texts import PackedTexts, packed_folder


def evaluate(
    task: Task,
    packed: Path,
    weights: dict[int, Path],
    network: Network,
    settings: Settings,
    folder: Path,
    context: DeviceContext,
    *,
    read: Path,
    auxiliary: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Score each seed's weights on test, or on dev where there is no test split; writes results and predictions.

    `read` is the folder of the stage with the answers of the baselines; `auxiliary` are the results of auxiliary tasks.
    Returns the counts and mean scores.
    """
    split = scored_split(task)
    answered = answer_seeds(network, task, packed / split, weights, settings, context)
    measure = measure_of(task, settings.evaluate)
    results = score_seeds(task, split, answered, measure)
    runs = np.stack([run.answers for run in answered.values()])
    results["baselines"] = compare_with_baselines(task, split, runs, measure, read)
    write_json(folder / RESULTS, {**results, TASKS: auxiliary} if auxiliary else results)
    write_text(folder / PREDICTIONS, prediction_lines(task, split, answered))
    dev = answered if split == "dev" else answer_seeds(network, task, packed / "dev", weights, settings, context)
    found = Evaluated(task, packed, network, weights, settings, context, dev, answered, split, measure)
    write_evidence(found, folder)
    by_task = {name: _counts(scores) for name, scores in auxiliary.items()} if auxiliary else {}
    return {**_counts(results), **({TASKS: by_task} if by_task else {})}


def answer_seeds(
    network: Network,
    task: Task,
    texts: Path,
    weights: Mapping[int, Path],
    settings: Settings,
    context: DeviceContext,
) -> dict[int, Answered]:
    """Return the answers of each seed's weights for the packed texts of a split."""
    answered = {}
    for seed, path in weights.items():
        load_weights(path, network)
        threshold = threshold_of(path.with_name(SEED_RESULT), settings.evaluate)
        answered[seed] = answer(network, task, texts, settings.evaluate, context, threshold=threshold)
    return answered


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
    """Return the network's answers for the packed texts of a split; their folder has its name."""
    outputs = class_probabilities(network, PackedTexts(texts), context=context, head=head)
    return Answered(answers_of(task, texts.name, outputs, threshold=threshold), outputs, threshold)


def _counts(results: Mapping[str, Any]) -> dict[str, Any]:
    named = ("split", "rows", "leak_free_rows", "baselines")
    return {**{name: results[name] for name in named if name in results}, **results["summary"]}


def threshold_of(result: Path, settings: EvaluateSettings) -> float:
    """Return the lowest probability of a predicted label: as set, or as tuned on dev with these weights."""
    if settings.threshold != "tuned":
        return settings.threshold
    return float(read_json(result).get("threshold", 0.5))


def score_seeds(
    task: Task, split: str, answered: Mapping[int, Answered], measure: Measure, *, siblings: Sequence[Task] = ()
) -> dict[str, Any]:
    """Return the scores of each seed on the whole split and on its leak-free rows, with mean and standard deviation.

    Several test sets have scores of their own, and the mean of these. `siblings` are other tasks of the same encoder.
    """
    examples, metric = task.splits[split], measure.name
    leaked = leaked_ids(task, split, siblings=siblings)
    clean = np.asarray([example.id not in leaked for example in examples], dtype=bool)
    seeds = [_score_seed(task, split, seed, run, measure, clean) for seed, run in answered.items()]
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
    return {**results, **_test_sets(task, split, answered, measure)}


def _score_seed(
    task: Task, split: str, seed: int, answered: Answered, measure: Measure, clean: NDArray[np.bool_]
) -> dict[str, Any]:
    truth = targets(task, split)
    row: dict[str, Any] = {"seed": seed, "scores": measure.all_scores(truth, answered.answers)}
    surprise = perplexity(task, split, answered.outputs)
    if surprise is not None:
        row["scores"]["perplexity"] = surprise
    if clean.any():
        row["leak_free_scores"] = measure.all_scores(truth[clean], answered.answers[clean])
    return row


def _test_sets(task: Task, split: str, answered: Mapping[int, Answered], measure: Measure) -> dict[str, Any]:
    """Return the mean score of each test set over the seeds, and the mean of these; empty for a single set."""
    parts = np.asarray([example.part or "" for example in task.splits[split]])
    names = sorted(set(parts) - {""})
    if not names:
        return {}
    truth, sets = targets(task, split), {}
    for name in names:
        rows = parts == name
        scores = [measure.score(truth[rows], run.answers[rows]) for run in answered.values()]
        sets[name] = {"rows": int(rows.sum()), **mean_and_spread("", scores)}
    return {"test_sets": sets, "mean_of_test_sets": statistics.fmean(scores["mean"] for scores in sets.values())}


def mean_and_spread(prefix: str, values: list[float]) -> dict[str, float]:
    """Return mean and sample standard deviation (0 for a single value)."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {f"{prefix}mean": statistics.fmean(values), f"{prefix}std": spread}


def prediction_lines(task: Task, split: str, answered: Mapping[int, Answered]) -> str:
    """Return the answers of all seeds, row by row, as JSON lines."""
    by_seed = {seed: task.task_type.to_names(run.answers, task.all_labels) for seed, run in answered.items()}
    lines = []
    for index, example in enumerate(task.splits[split]):
        predicted = {seed: answers[index] for seed, answers in by_seed.items()}
        lines.append(json.dumps({"id": example.id, "label": example.label, "predicted": predicted}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def evaluate_auxiliary_tasks(
    task: Task,
    packed: Path,
    weights: dict[int, Path],
    network: Network,
    settings: Settings,
    folder: Path,
    context: DeviceContext,
) -> dict[str, Any]:
    """Score each seed's weights on every auxiliary task that they can predict; returns results by task name.

    Each task has its own head and the default metric of its type: `evaluate.metric` is that of the end task. The
    predictions for the final split are written into the folder.
    """
    task_settings = settings.evaluate.model_copy(update={"metric": "auto", "positive_label": None})
    results = {}
    for name in settings.scored_tasks:
        auxiliary, siblings = task.auxiliary[name], sibling_tasks(task, name)
        measure, split = measure_of(auxiliary, task_settings), scored_split(auxiliary)
        texts = packed_folder(packed, name)
        dev: dict[int, Answered] = {}
        final: dict[int, Answered] = {}
        thresholds: dict[int, float] = {}
        for seed, path in weights.items():
            load_weights(path, network)
            dev[seed], final[seed], thresholds[seed] = _answer_auxiliary(
                network, name, auxiliary, texts, task_settings, context, measure, split
            )
        (folder / TASKS / name).mkdir(parents=True, exist_ok=True)
        write_text(folder / TASKS / name / PREDICTIONS, prediction_lines(auxiliary, split, final))
        parts = [split_predictions(dev, "dev")] + [split_predictions(final, split)] * (split != "dev")
        write_prediction_table(folder / TASKS / name / PREDICTION_TABLE, auxiliary, parts, measure.name)
        results[name] = {
            "type": auxiliary.type,
            **score_seeds(auxiliary, split, final, measure, siblings=siblings),
            "dev": score_seeds(auxiliary, "dev", dev, measure, siblings=siblings)["summary"],
            **({"thresholds": thresholds} if auxiliary.task_type.has_threshold else {}),
        }
    return results


def _answer_auxiliary(
    network: Network,
    name: str,
    task: Task,
    packed: Path,
    settings: EvaluateSettings,
    context: DeviceContext,
    measure: Measure,
    split: str,
) -> tuple[Answered, Answered, float]:
    """Return the answers for dev and for the final split, and the threshold of labels: as set, or the best on dev."""
    answer_split = partial(answer, network, task, settings=settings, context=context, head=auxiliary_head(name))
    threshold = 0.5 if settings.threshold == "tuned" else settings.threshold
    dev = answer_split(texts=packed / "dev", threshold=threshold)
    if settings.threshold == "tuned" and task.task_type.has_threshold:
        threshold = best_threshold(task, "dev", dev.outputs, measure)
        dev = Answered(answers_of(task, "dev", dev.outputs, threshold=threshold), dev.outputs, threshold)
    return dev, answer_split(texts=packed / split, threshold=threshold), threshold
