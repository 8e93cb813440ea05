"""Save the model of the best seed on dev as a Hugging Face folder with a model card."""

from __future__ import annotations

import json
import re
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
from endtask.io.atomic import write_json, write_text
from endtask.io.run_layout import BEST_WEIGHTS, MODEL_FACTS, RESULTS, SEED_RESULT, TASKS
from endtask.registry import task_types
from endtask.task import Task
from endtask.task.targets import score_scale
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer

_MARKERS_NOTE = """- The head pools over the entity markers of a text, which no classifier of transformers does:
  `AutoModel` loads the encoder only, `endtask.load` the complete model.
"""
_MARKERS_EXAMPLE = """import endtask
predictions = endtask.load("path/to/this/folder").predict(["a text with its [[ entity markers ]]"])"""


def save_model(
    network: Network, task: Task, packed: Path, finetuned: Path, evaluated: Path, settings: Settings, folder: Path
) -> dict[str, Any]:
    """Write config, weights, tokenizer and card of the best seed. Return counts for the manifest."""
    results = json.loads((evaluated / RESULTS).read_text(encoding="utf-8"))
    best = best_seed(finetuned, settings, results["summary"]["metric"])
    weights = finetuned / f"seed-{best['seed']}" / BEST_WEIGHTS
    load_weights(weights, network)
    threshold = threshold_of(weights.with_name(SEED_RESULT), settings.evaluate)
    _write(network, task, packed, settings, folder, results, seed=best["seed"], threshold=threshold)
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
    results = json.loads((evaluated / RESULTS).read_text(encoding="utf-8"))[TASKS][name]
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
    card = model_card(settings, results, seed, labels, task_type=task.type, facts=facts, reads_markers=reads_markers)
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
    }


def best_seed(finetuned: Path, settings: Settings, metric: str) -> dict[str, Any]:
    """Return the result of the seed with the highest dev score; the earlier seed wins a tie."""
    results = [
        json.loads((finetuned / f"seed-{seed}" / SEED_RESULT).read_text(encoding="utf-8"))
        for seed in settings.model_seeds
    ]
    return max(results, key=lambda result: float(result["dev"][metric]))


def model_card(
    settings: Settings,
    results: dict[str, Any],
    seed: int,
    labels: tuple[str, ...],
    *,
    task_type: str = "text",
    facts: dict[str, Any] | None = None,
    reads_markers: bool = False,
) -> str:
    """Return a short model card: what the model predicts, its scores, and how to load it."""
    predicts = task_types.get(task_type)
    summary = results["summary"]
    sources = ", ".join(_code(source.name or source.path) for source in settings.corpus.sources) or "no corpus"
    start = "random weights" if settings.model.path is None else _code(settings.model.path)
    scores = f"{100 * summary['mean']:.1f} ± {100 * summary['std']:.1f}"
    leak_free = (
        f"{100 * summary['leak_free_mean']:.1f} ± {100 * summary['leak_free_std']:.1f}"
        if "leak_free_mean" in summary
        else "no such rows"
    )
    weights = f"The weights are those of seed {seed}, the best on dev."
    if settings.skip_finetuning:
        weights = "The weights are those of pre-training; there was no fine-tuning."
    return f"""---
library_name: transformers
pipeline_tag: {predicts.card_pipeline}
---
# {_plain(Path(settings.task.path).name or settings.task.path)}

{predicts.card_title} trained from {start} with endtask on the task {_code(settings.task.path)} and text retrieved
from: {sources}.

{_labels_line(predicts, labels, facts or {})}
- {summary["metric"]} on {results["split"]} ({results["rows"]} rows), mean and standard deviation over
  {len(results["seeds"])} fine-tuning {"seed" if len(results["seeds"]) == 1 else "seeds"}: {scores}
- the same on the {results["leak_free_rows"]} rows whose text is not in train: {leak_free}
{_test_set_lines(results)}- {weights}
- {_length_line(settings)}
{_MARKERS_NOTE if reads_markers else ""}
```python
{_MARKERS_EXAMPLE if reads_markers else f"from transformers import pipeline{chr(10)}{predicts.card_call}"}
```
"""


def _labels_line(task_type: Any, labels: tuple[str, ...], facts: dict[str, Any]) -> str:
    if task_type.form == "numbers":
        return "- It predicts a number on the scale of the training data."
    named = f"- {'Tags' if task_type.per_token else 'Labels'}: {', '.join(map(_code, labels))}"
    return f"{named}; predicted from a probability of {facts['threshold']:g}" if "threshold" in facts else named


def _test_set_lines(results: dict[str, Any]) -> str:
    """Return a line for each of several test sets, and one for their mean."""
    sets = results.get("test_sets", {})
    lines = [f"- {_code(name)} ({scores['rows']} rows): {100 * scores['mean']:.1f}" for name, scores in sets.items()]
    if sets:
        lines.append(f"- mean of the test sets: {100 * results['mean_of_test_sets']:.1f}")
    return "".join(f"{line}\n" for line in lines)


def _length_line(settings: Settings) -> str:
    """Return how the model handles long texts."""
    length, stride = settings.finetune.max_length, settings.finetune.window_stride
    if stride is None:
        return f"Texts are truncated to {length} tokens."
    return (
        f"Texts of more than {length} tokens were split into windows that start {stride} tokens apart, and the\n"
        "  probabilities averaged. `endtask predict` does so; the pipeline below truncates long texts."
    )


def _plain(text: str) -> str:
    r"""Escape a user's text for a Markdown line: no line breaks, no markup, no HTML.

    >>> print(_plain("my_<b>task\n# 2"))
    my\_\<b\>task \# 2
    """
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    r"""Return a user's text as a code span, fenced by more backticks than its longest run of them.

    >>> print(_code("a`b"), _code("two\nlines"))
    `` a`b `` `two lines`
    """
    text = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return f"{'`' * (longest + 1)} {text} {'`' * (longest + 1)}" if longest else f"`{text}`"
