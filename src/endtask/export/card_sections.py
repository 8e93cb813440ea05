"""The sections of a model card about use, data, hyper-parameters, cost, leaks and limits, as lines of Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from endtask.config import Settings
from endtask.encoders.base import shape_of
from endtask.export.markdown import code
from endtask.reporting import format as shown
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder

Tree = Mapping[str, Any]


def title(settings: Settings) -> str:
    """Return the name of the task."""
    return Path(settings.task.path).name or settings.task.path


def score_text(metric: str, values: list[float]) -> str:
    """Return the mean of the seeds' scores, with its standard deviation."""
    if not values:
        return "–"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return shown.metric_with_spread(metric, statistics.fmean(values), spread, len(values))


def intended_use(settings: Settings, about: Any) -> str:
    """Return what the model is for, and what it was not tested for."""
    task = code(title(settings))
    return (
        f"The model gives {about.answer_phrase}, for texts like those of the task {task}. It was not tested\n"
        "on other kinds of text, in other languages, or for decisions about people."
    )


def baselines(results: Tree) -> Iterator[str]:
    """Yield the interval of the score, and the baselines on the same rows."""
    found = results.get("baselines", {})
    metric = results["summary"]["metric"]
    if "interval" in found:
        low, high = (score_text(metric, [value]) for value in found["interval"])
        yield f"{metric}: 95% interval over rows and seeds [{low}, {high}]."
    for baseline in found.values():
        if isinstance(baseline, dict):
            points = score_text(metric, [baseline["score"]])
            yield f"{metric} of the baseline {code(baseline['description'])}: {points}."


def leaks(results: Tree, run: RunFolder | None) -> str:
    """Return how many rows of the score are also in train, and what the contamination filter dropped."""
    leaked = results["rows"] - results["leak_free_rows"]
    found = f"{leaked:,} of {results['rows']:,} rows of {results['split']} have a text that is also in train."
    dropped = run.counts("retrieve").get("dropped_by_contamination_filter") if run else None
    if dropped is None:
        return found
    passages = shown.plural(dropped, "retrieved passage")
    return f"{found} The contamination filter dropped {passages} with a dev or test text."


def data(settings: Settings, run: RunFolder | None) -> Iterator[str]:
    """Yield what the model was trained on."""
    yield f"Labelled data: {code(settings.task.path)}{_rows_of_splits(run)}"
    for name, task in settings.tasks.items():
        yield f"Auxiliary task {code(name)}: {code(task.path)}"
    selected = run.counts("select") if run else {}
    if selected.get("passages"):
        of_corpus = selected.get("share_of_corpus")
        share = f", {shown.share(of_corpus)} of the corpus" if of_corpus else ""
        passages = shown.plural(selected["passages"], "passage")
        yield f"Selection by `{settings.select.name}`: {passages}, {shown.size(selected['bytes'])}{share}"
    for source in settings.corpus.sources:
        yield f"Corpus {code(source.name or source.path)}, licence {code(source.license or 'not stated')}"


def _rows_of_splits(run: RunFolder | None) -> str:
    counts = run.counts("read") if run else {}
    rows = ", ".join(f"{rows:,} {split}" for split, rows in counts.items() if isinstance(rows, int))
    return f" ({rows} rows)" if rows else ""


def licences(settings: Settings) -> str:
    """Return the licences that the sources of text state."""
    stated = sorted({source.license for source in settings.corpus.sources if source.license})
    return f"The corpus states: {', '.join(map(code, stated))}." if stated else "No source of text states a licence."


def hyperparameters(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the settings that decide about the weights."""
    model, pretrain, finetune = settings.model, settings.pretrain, settings.finetune
    yield from (("seed", str(settings.seed)), ("budget", str(settings.budget)))
    if model.path is None:
        shape = shape_of(model)
        yield "model", f"{model.architecture}, {shape.hidden_size} x {shape.num_hidden_layers}"
        yield "tokenizer.vocab_size", str(settings.tokenizer.vocab_size)
    else:
        yield "model.path", model.path
    yield from (("select.name", settings.select.name), ("select.budget", str(settings.select.budget)))
    if not settings.skip_pretraining:
        yield "pretrain.objectives", ", ".join(f"{name} ({one.kind})" for name, one in settings.used_objectives.items())
        yield "pretrain.weighting", pretrain.weighting.name
        yield from _training_settings("pretrain", pretrain)
    if not settings.skip_finetuning:
        yield from _training_settings("finetune", finetune)
        yield "finetune.epochs", str(finetune.epochs)
        yield "finetune.seeds", ", ".join(map(str, finetune.seeds))


def _training_settings(section: str, values: Any) -> Iterator[tuple[str, str]]:
    for key in ("learning_rate", "batch_size", "max_length", "warmup_steps", "weight_decay"):
        yield f"{section}.{key}", str(getattr(values, key))


def cost(run: RunFolder, *, with_times: bool) -> Iterator[str]:
    """Yield what training cost; times and energy differ from machine to machine."""
    total = total_cost(stage_costs(run))
    if run.counts("pretrain"):
        yield f"{shown.count(run.counts('pretrain')['parameters'])} parameters"
    operations = f"{shown.flops(total['flops'])} FLOPs (6 x parameters x tokens)"
    yield f"{shown.count(total['tokens'])} tokens of training, {operations}"
    if with_times:
        yield f"{shown.duration(total['seconds'])} for all stages"
        if total["joules"]:
            yield f"{shown.energy(total['joules'])}, measured on the machine"
        if total["gpu_bytes"]:
            yield f"{shown.size(total['gpu_bytes'])} of GPU memory at most"


def limits(settings: Settings, results: Tree, about: Any) -> Iterator[str]:
    """Yield what a user must know before relying on the model."""
    yield "The model reproduces the errors and the bias of its labels and of the text that it was trained on."
    if len(results["seeds"]) < 3 and not settings.skip_finetuning:
        yield "With fewer than three fine-tunings the standard deviation says little about the next one."
    if results["rows"] < 500:
        yield f"The score is from {results['rows']:,} rows; on other rows it may differ by several points."
    if results["split"] == "dev":
        yield "There was no test split: the score is that of dev, which also chose the weights."
    if about.one_label and not about.per_token:
        yield "It gives one of its labels to every text, also to texts that none of them fits."


def versions(run: RunFolder | None) -> str:
    """Return the versions of the libraries that trained the model."""
    manifests = run.manifests if run else {}
    found = manifests.get("finetune", {}).get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in found.items())
