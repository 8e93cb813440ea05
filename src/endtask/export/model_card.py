"""The model card: metadata with scores for the hub, use, results, data, hyper-parameters, cost, leaks and limits.

The card of the stage `model` holds no times and no joules, since the same settings give the same bits. Cards of exports
add them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from endtask.config import Settings
from endtask.encoders.base import shape_of
from endtask.export import markdown
from endtask.export.markdown import code, front_matter, one_line, plain
from endtask.registry import task_types
from endtask.reporting import format as shown
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.run_folder import RunFolder

Tree = Mapping[str, Any]

_MARKERS_NOTE = (
    "The head pools over the entity markers of a text, which no classifier of transformers does:\n"
    "  `AutoModel` loads the encoder only, `endtask.load` the complete model."
)
_MARKERS_USE = """import endtask
predictions = endtask.load("path/to/this/folder").predict(["a text with its [[ entity markers ]]"])"""
_MOST_LABELS = 200


@dataclass(frozen=True)
class CardKind:
    """What distinguishes the card of an export from that of the model folder."""

    library: str = "transformers"
    usage: str | None = None
    """Code that loads the folder; None: the pipeline of the task type."""
    pipeline: str | None = None
    notes: tuple[str, ...] = ()
    with_times: bool = False


def model_card(
    settings: Settings,
    results: Tree,
    seed: int,
    labels: tuple[str, ...],
    *,
    task_type: str = "text",
    facts: Tree | None = None,
    reads_markers: bool = False,
    run: RunFolder | None = None,
    kind: CardKind | None = None,
) -> str:
    """Return the card; without `run` it has no parts about data and cost."""
    kind, about = kind or CardKind(), task_types.get(task_type)
    has_own_use = kind.usage is not None
    usage = kind.usage or (_MARKERS_USE if reads_markers else f"from transformers import pipeline\n{about.card_call}")
    notes = (*((_MARKERS_NOTE,) if reads_markers and not has_own_use else ()), *kind.notes)
    card: str = _template().render(
        metadata=front_matter(_metadata(settings, results, about, kind)),
        title=_title(settings),
        about=about,
        start="random weights" if settings.model.path is None else code(settings.model.path),
        task_path=settings.task.path,
        sources=_sources(settings),
        labels_line=_labels_line(about, labels, facts or {}),
        **_scores(results),
        weights=_weights(settings, seed),
        length=_about_length(settings),
        notes=notes,
        usage=usage,
        intended_use=_intended_use(settings, about),
        metrics=list(_metric_rows(results)),
        baselines=list(_baselines(results)),
        leaks=_leaks(results, run),
        data=list(_data(settings, run)),
        licences=_licences(settings),
        hyperparameters=list(_hyperparameters(settings)),
        cost=list(_cost(run, kind)) if run else [],
        limits=list(_limits(settings, results, about)),
        versions=_versions(run),
    )
    return card + "\n"


@cache
def _template() -> jinja2.Template:
    # Not escaped as HTML, since it is Markdown: the filters escape.
    environment = jinja2.Environment(
        autoescape=False, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(plain=plain, code=code, cell=markdown.cell)
    source = resources.files("endtask.export").joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def _title(settings: Settings) -> str:
    return Path(settings.task.path).name or settings.task.path


def _sources(settings: Settings) -> str:
    return ", ".join(code(source.name or source.path) for source in settings.corpus.sources)


def _metadata(settings: Settings, results: Tree, about: Any, kind: CardKind) -> dict[str, Any]:
    """Return the metadata that the hub reads, with the scores as `model-index`."""
    pipeline = kind.pipeline or about.card_pipeline
    name = one_line(_title(settings)) or "task"
    found: dict[str, Any] = {"library_name": kind.library, "pipeline_tag": pipeline, "license": "unknown"}
    if settings.model.path is not None and settings.model.path.startswith("hf:"):
        found["base_model"] = one_line(settings.model.path.removeprefix("hf:"))
    means = {metric: _mean(values) for metric, values in _by_metric(results, "scores").items()}
    return {
        **found,
        "tags": ["endtask", pipeline],
        "metrics": list(means),
        "model-index": [{"name": name, "results": [_index_entry(name, results, about, means)]}],
    }


def _index_entry(name: str, results: Tree, about: Any, means: Mapping[str, float]) -> dict[str, Any]:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "task"
    return {
        "task": {"type": about.card_pipeline, "name": about.card_pipeline.replace("-", " ").capitalize()},
        "dataset": {"type": slug, "name": name, "split": results["split"]},
        "metrics": [{"type": metric, "value": round(mean, 6), "name": metric} for metric, mean in means.items()],
    }


def _by_metric(results: Tree, key: str) -> dict[str, list[float]]:
    """Return the scores of every seed by metric, the metric of the task first."""
    summary, rows = results["summary"], [row[key] for row in results["seeds"] if key in row]
    names = dict.fromkeys((summary["metric"], *(name for row in rows for name in row)))
    found = {name: [row[name] for row in rows if name in row] for name in names}
    prefix = "leak_free_" if key == "leak_free_scores" else ""
    if not found[summary["metric"]] and f"{prefix}mean" in summary:
        found[summary["metric"]] = [summary[f"{prefix}mean"]]
    return {name: values for name, values in found.items() if values}


def _mean(values: list[float]) -> float:
    return statistics.fmean(values)


def _scores(results: Tree) -> dict[str, Any]:
    summary, seeds = results["summary"], len(results["seeds"])
    leak_free = "no such rows"
    if "leak_free_mean" in summary:
        leak_free = f"{100 * summary['leak_free_mean']:.1f} ± {100 * summary['leak_free_std']:.1f}"
    return {
        "metric": summary["metric"],
        "split": results["split"],
        "rows": results["rows"],
        "seeds": f"{seeds} fine-tuning {'seed' if seeds == 1 else 'seeds'}",
        "score": f"{100 * summary['mean']:.1f} ± {100 * summary['std']:.1f}",
        "leak_free_rows": results["leak_free_rows"],
        "leak_free_score": leak_free,
        "test_sets": list(_test_sets(results)),
    }


def _test_sets(results: Tree) -> Iterator[str]:
    """Yield a line for each of several test sets, and their mean."""
    sets = results.get("test_sets", {})
    for name, found in sets.items():
        yield f"- {code(name)} ({found['rows']} rows): {100 * found['mean']:.1f}"
    if sets:
        yield f"- mean of the test sets: {100 * results['mean_of_test_sets']:.1f}"


def _metric_rows(results: Tree) -> Iterator[dict[str, str]]:
    leak_free = _by_metric(results, "leak_free_scores")
    for name, values in _by_metric(results, "scores").items():
        yield {"name": name, "score": _shown(name, values), "leak_free": _shown(name, leak_free.get(name, []))}


def _shown(metric: str, values: list[float]) -> str:
    if not values:
        return "–"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return shown.metric_with_spread(metric, _mean(values), spread, len(values))


def _labels_line(about: Any, labels: tuple[str, ...], facts: Tree) -> str:
    if about.form == "numbers":
        return "- It predicts a number on the scale of the training data."
    some = ", ".join(map(code, labels[:_MOST_LABELS]))
    more = f" and {len(labels) - _MOST_LABELS:,} more" if len(labels) > _MOST_LABELS else ""
    named = f"- {'Tags' if about.per_token else 'Labels'}: {some}{more}"
    return f"{named}; predicted from a probability of {facts['threshold']:g}" if "threshold" in facts else named


def _weights(settings: Settings, seed: int) -> str:
    if settings.skip_finetuning:
        return "The weights are those of pre-training; there was no fine-tuning."
    return f"The weights are those of seed {seed}, the best on dev."


def _about_length(settings: Settings) -> str:
    """Describe how the model handles long texts."""
    length, stride = settings.finetune.max_length, settings.finetune.window_stride
    if stride is None:
        return f"Texts are truncated to {length} tokens."
    return (
        f"Texts of more than {length} tokens were split into windows that start {stride} tokens apart, and the\n"
        "  probabilities averaged. `endtask predict` does so; the code below truncates long texts."
    )


def _intended_use(settings: Settings, about: Any) -> str:
    task = code(_title(settings))
    return (
        f"The model gives {about.answer_phrase}, for texts like those of the task {task}. It was not tested\n"
        "on other kinds of text, in other languages, or for decisions about people."
    )


def _baselines(results: Tree) -> Iterator[str]:
    """Yield the interval of the score, and the baselines on the same rows."""
    found = results.get("baselines", {})
    metric = results["summary"]["metric"]
    if "interval" in found:
        low, high = (_shown(metric, [value]) for value in found["interval"])
        yield f"{metric}: 95% interval over rows and seeds [{low}, {high}]."
    for baseline in found.values():
        if isinstance(baseline, dict):
            yield f"{metric} of the baseline {code(baseline['description'])}: {_shown(metric, [baseline['score']])}."


def _leaks(results: Tree, run: RunFolder | None) -> str:
    leaked = results["rows"] - results["leak_free_rows"]
    found = f"{leaked:,} of {results['rows']:,} rows of {results['split']} have a text that is also in train."
    dropped = run.counts("retrieve").get("dropped_by_contamination_filter") if run else None
    if dropped is None:
        return found
    passages = shown.plural(dropped, "retrieved passage")
    return f"{found} The contamination filter dropped {passages} with a dev or test text."


def _data(settings: Settings, run: RunFolder | None) -> Iterator[str]:
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


def _licences(settings: Settings) -> str:
    stated = sorted({source.license for source in settings.corpus.sources if source.license})
    return f"The corpus states: {', '.join(map(code, stated))}." if stated else "No source of text states a licence."


def _hyperparameters(settings: Settings) -> Iterator[tuple[str, str]]:
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


def _cost(run: RunFolder, kind: CardKind) -> Iterator[str]:
    """Yield what training cost; times and energy differ from machine to machine."""
    total = total_cost(stage_costs(run))
    if run.counts("pretrain"):
        yield f"{shown.count(run.counts('pretrain')['parameters'])} parameters"
    operations = f"{shown.flops(total['flops'])} FLOPs (6 x parameters x tokens)"
    yield f"{shown.count(total['tokens'])} tokens of training, {operations}"
    if kind.with_times:
        yield f"{shown.duration(total['seconds'])} for all stages"
        if total["joules"]:
            yield f"{shown.energy(total['joules'])}, measured on the machine"
        if total["gpu_bytes"]:
            yield f"{shown.size(total['gpu_bytes'])} of GPU memory at most"


def _limits(settings: Settings, results: Tree, about: Any) -> Iterator[str]:
    yield "The model reproduces the errors and the bias of its labels and of the text that it was trained on."
    if len(results["seeds"]) < 3 and not settings.skip_finetuning:
        yield "With fewer than three fine-tunings the standard deviation says little about the next one."
    if results["rows"] < 500:
        yield f"The score is from {results['rows']:,} rows; on other rows it may differ by several points."
    if results["split"] == "dev":
        yield "There was no test split: the score is that of dev, which also chose the weights."
    if about.one_label and not about.per_token:
        yield "It gives one of its labels to every text, also to texts that none of them fits."


def _versions(run: RunFolder | None) -> str:
    manifests = run.manifests if run else {}
    found = manifests.get("finetune", {}).get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in found.items())
