"""Save the model of the best seed on dev as a Hugging Face folder with a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from endtask.config import Settings
from endtask.encoders.heads import markers_of
from endtask.encoders.huggingface import save_classifier
from endtask.encoders.network import TASK, Network
from endtask.encoders.weights import load_weights
from endtask.evaluation.evaluate import threshold_of
from endtask.export.model_card import model_card
from endtask.io.atomic import write_json, write_text
from endtask.io.parsing import read_json
from endtask.io.run_layout import BEST_WEIGHTS, MODEL_FACTS, RESULTS, SEED_RESULT, SETTINGS_FILE, TASKS
from endtask.reporting.run_folder import RunFolder
from endtask.task import Task
from endtask.task.spans import has_punctuation_split
from endtask.task.targets import score_scale
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer


def save_model(
    network: Network, task: Task, packed: Path, finetuned: Path, evaluated: Path, settings: Settings, folder: Path
) -> dict[str, Any]:
    """Write config, weights, tokenizer and card of the best seed. Return counts for the manifest."""
    results = read_json(evaluated / RESULTS)
    best = best_seed(finetuned, settings, results["summary"]["metric"])
    weights = finetuned / f"seed-{best['seed']}" / BEST_WEIGHTS
    load_weights(weights, network)
    threshold = threshold_of(weights.with_name(SEED_RESULT), settings.evaluate)
    run = RunFolder(packed.parent) if (packed.parent / SETTINGS_FILE).exists() else None
    _write(network, task, packed, settings, folder, results, seed=best["seed"], threshold=threshold, run=run)
    return {"seed": best["seed"], "dev": best["dev"]}


def save_auxiliary_model(
    network: Network,
    name: str,
    task: Task,
    packed: Path,
    evaluated: Path,
    settings: Settings,
    folder: Path,
    *,
    seed: int,
) -> None:
    """Write the model of an auxiliary task, whose network already has the weights of the saved seed."""
    results = read_json(evaluated / RESULTS)[TASKS][name]
    threshold = results.get("thresholds", {}).get(str(seed), 0.5)
    task_settings = settings.model_copy(update={"task": settings.tasks[name]})
    _write(network, task, packed, task_settings, folder, results, seed=seed, threshold=threshold)


def _write(
    network: Network,
    task: Task,
    packed: Path,
    settings: Settings,
    folder: Path,
    results: dict[str, Any],
    *,
    seed: int,
    threshold: float,
    run: RunFolder | None = None,
) -> None:
    """Write config, weights, tokenizer, card, and the facts that prediction needs."""
    if task.task_type.form == "numbers":
        fold_scale(network.heads[TASK], *score_scale(task))
    save_classifier(network, folder)
    tokenizer = load_tokenizer(packed / "tokenizer")
    tokenizer.model_max_length = settings.finetune.max_length
    tokenizer.model_input_names = list(network.architecture.input_names)
    save_tokenizer(tokenizer, folder)
    facts = _facts(task, settings, threshold)
    if facts:
        write_json(folder / MODEL_FACTS, facts)
    labels = tuple(network.config.id2label.values())
    reads_markers = not task.task_type.per_token and bool(markers_of(network.config))
    card = model_card(
        settings,
        results,
        seed,
        labels,
        task_type=task.type,
        facts=facts,
        reads_markers=reads_markers,
        run=run,
    )
    write_text(folder / "README.md", card)


def fold_scale(head: nn.Module, mean: float, deviation: float) -> None:
    """Rescale the last layer of a head from standardized scores to the task's scale.

    >>> layer = nn.Linear(1, 1)
    >>> before = layer(torch.ones(1))
    >>> fold_scale(layer, 3.0, 2.0)
    >>> bool(torch.isclose(layer(torch.ones(1)), 3.0 + 2.0 * before))
    True
    """
    *_, last = (part for part in head.modules() if isinstance(part, nn.Linear))
    with torch.no_grad():
        last.weight.mul_(deviation)
        last.bias.mul_(deviation).add_(mean)


def _facts(task: Task, settings: Settings, threshold: float) -> dict[str, Any]:
    """Return the facts that prediction needs and that no file of Hugging Face contains."""
    stride = settings.finetune.window_stride
    return {
        **({} if stride is None else {"window_stride": stride}),
        **({"threshold": threshold} if task.task_type.has_threshold else {}),
        **({"split_punctuation": True} if task.task_type.per_token and has_punctuation_split(task.train) else {}),
    }


def best_seed(finetuned: Path, settings: Settings, metric: str) -> dict[str, Any]:
    """Return the result of the seed with the highest dev score; the earlier seed wins a tie."""
    results = [read_json(finetuned / f"seed-{seed}" / SEED_RESULT) for seed in settings.model_seeds]
    return max(results, key=lambda result: float(result["dev"][metric]))
