"""The model stage: the seed that is best on dev, as a plain Hugging Face folder with a model card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from endtask.files.atomic import write_json, write_text
from endtask.files.run_layout import BEST_WEIGHTS, MODEL_FACTS, RESULTS, SEED_RESULT
from endtask.models.huggingface import save_classifier
from endtask.models.network import Network
from endtask.models.weights import load_weights
from endtask.settings import Settings
from endtask.text.tokenizer import load_tokenizer, save_tokenizer


def save_model(
    network: Network, packed: Path, finetuned: Path, evaluated: Path, settings: Settings, folder: Path
) -> dict[str, Any]:
    """Write config, weights, tokenizer and card of the best seed; returns counts for the manifest."""
    best = best_seed(finetuned, settings)
    load_weights(finetuned / f"seed-{best['seed']}" / BEST_WEIGHTS, network)
    save_classifier(network, folder)
    tokenizer = load_tokenizer(packed / "tokenizer")
    tokenizer.model_max_length = settings.finetune.max_length
    tokenizer.model_input_names = list(network.architecture.input_names)
    save_tokenizer(tokenizer, folder)
    if settings.finetune.window_stride is not None:
        write_json(folder / MODEL_FACTS, {"window_stride": settings.finetune.window_stride})
    results = json.loads((evaluated / RESULTS).read_text(encoding="utf-8"))
    write_text(
        folder / "README.md",
        model_card(settings, results, best["seed"], tuple(network.config.id2label.values())),
    )
    return {"seed": best["seed"], "dev": best["dev"]}


def best_seed(finetuned: Path, settings: Settings) -> dict[str, Any]:
    """The result of the seed with the highest dev score; the earlier seed wins a tie."""
    results = [
        json.loads((finetuned / f"seed-{seed}" / SEED_RESULT).read_text(encoding="utf-8"))
        for seed in settings.model_seeds
    ]
    return max(results, key=lambda result: float(result["dev"][settings.evaluate.metric]))


def model_card(settings: Settings, results: dict[str, Any], seed: int, labels: tuple[str, ...]) -> str:
    """A short card: what it predicts, how it scored, how to load it."""
    summary = results["summary"]
    sources = ", ".join(_code(source.name or source.path) for source in settings.corpus.sources) or "no corpus"
    start = "random weights" if settings.model.path is None else _code(settings.model.path)
    scores = f"{100 * summary['mean']:.1f} ± {100 * summary['std']:.1f}"
    leak_free = (
        f"{100 * summary['leak_free_mean']:.1f} ± {100 * summary['leak_free_std']:.1f}"
        if "leak_free_mean" in summary
        else "no such rows"
    )
    weights = f"These weights are those of seed {seed}, the best on dev."
    if settings.stage2 == "none":
        weights = "These weights are those of the joint training; there was no fine-tuning after it."
    return f"""---
library_name: transformers
pipeline_tag: text-classification
---
# {_plain(Path(settings.task.path).name or settings.task.path)}

A text classifier trained from {start} with endtask on the task {_code(settings.task.path)} and text retrieved
from: {sources}.

- Labels: {", ".join(map(_code, labels))}
- {summary["metric"]} on {results["split"]} ({results["rows"]} rows), mean and spread over
  {len(results["seeds"])} fine-tuning {"seed" if len(results["seeds"]) == 1 else "seeds"}: {scores}
- the same on the {results["leak_free_rows"]} rows whose text does not stand in train: {leak_free}
- {weights}
- {_about_length(settings)}

```python
from transformers import pipeline
classify = pipeline("text-classification", "path/to/this/folder", truncation=True)
```
"""


def _about_length(settings: Settings) -> str:
    """What becomes of long texts, which nobody sees from the outside."""
    length, stride = settings.finetune.max_length, settings.finetune.window_stride
    if stride is None:
        return f"Texts are cut off after {length} tokens."
    return (
        f"Texts of more than {length} tokens were read by windows that start {stride} tokens apart, and the\n"
        "  probabilities averaged. `endtask predict` does so; the pipeline below cuts long texts off."
    )


def _plain(text: str) -> str:
    r"""A user's text for a Markdown line: no line breaks, no marks, no HTML.

    >>> print(_plain("my_<b>task\n# 2"))
    my\_\<b\>task \# 2
    """
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    r"""A user's text as a code span, fenced by more backticks than it holds in a row.

    >>> print(_code("a`b"), _code("two\nlines"))
    `` a`b `` `two lines`
    """
    text = " ".join(text.split()) or " "
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return f"{'`' * (longest + 1)} {text} {'`' * (longest + 1)}" if longest else f"`{text}`"
