"""The model card: metadata with scores for the hub, use, results, data, hyper-parameters, cost, leaks and limits.

The card of the stage `model` holds no times and no joules, since the same settings give the same bits. Cards of exports
add them.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from endtask.config import Settings
from endtask.export import card_sections as sections
from endtask.export import markdown
from endtask.export.card_sections import score_text, title
from endtask.export.markdown import code, front_matter, one_line
from endtask.registry import task_types
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
    card: str = markdown.template("model_card.md.jinja").render(
        metadata=front_matter(_metadata(settings, results, about, kind)),
        title=title(settings),
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
        intended_use=sections.intended_use(settings, about),
        metrics=list(_metric_rows(results)),
        baselines=list(sections.baselines(results)),
        leaks=sections.leaks(results, run),
        data=list(sections.data(settings, run)),
        licences=sections.licences(settings),
        hyperparameters=list(sections.hyperparameters(settings)),
        cost=list(sections.cost(run, with_times=kind.with_times)) if run else [],
        limits=list(sections.limits(settings, results, about)),
        versions=sections.versions(run),
    )
    return card + "\n"


def _sources(settings: Settings) -> str:
    return ", ".join(code(source.name or source.path) for source in settings.corpus.sources)


def _metadata(settings: Settings, results: Tree, about: Any, kind: CardKind) -> dict[str, Any]:
    """Return the metadata that the hub reads, with the scores as `model-index`."""
    pipeline = kind.pipeline or about.card_pipeline
    name = one_line(title(settings)) or "task"
    found: dict[str, Any] = {"library_name": kind.library, "pipeline_tag": pipeline, "license": "unknown"}
    if settings.model.path is not None and settings.model.path.startswith("hf:"):
        found["base_model"] = one_line(settings.model.path.removeprefix("hf:"))
    means = {metric: statistics.fmean(values) for metric, values in _by_metric(results, "scores").items()}
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
        yield {"name": name, "score": score_text(name, values), "leak_free": score_text(name, leak_free.get(name, []))}


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
