"""The report of a run as a self-contained HTML file, and the same numbers for the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from endtask.io.atomic import remove_leftovers_of, write_text
from endtask.registry import task_types
from endtask.reporting import baselines, errors, quality, scores, selection
from endtask.reporting.analysis import analysis_of
from endtask.reporting.costs import stage_costs, total_cost
from endtask.reporting.curves import finetune_charts, objective_rows, pretrain_charts
from endtask.reporting.headline import headline_of, tiles_of, verdict_sentence
from endtask.reporting.prediction_rows import PredictionRows
from endtask.reporting.render import render
from endtask.reporting.run_folder import RunFolder
from endtask.reporting.text_map import text_map

REPORT = "report.html"
SECTIONS = {
    "results": "Results",
    "errors": "Errors",
    "labels": "Labels to check",
    "calibration": "Calibration",
    "slices": "Slices",
    "training": "Training",
    "selection": "Selection",
    "analysis": "Inside the encoder",
    "data": "Task data",
    "cost": "Cost",
    "use": "Use the model",
    "settings": "Settings",
}
"""The sections of the report in order: the name of each template in `templates/report`, and the title."""
_MATRIX_LABELS = 20
_MISTAKES = 20
_MOST_CHOICES = 60

Context = dict[str, Any]
MODEL_FOLDER = '"path/to/this/folder"'
"""The placeholder of the model's folder in the example calls of task types."""


def write_report(folder: Path) -> Path:
    """Write `report.html` into the run's folder from its finished stages. Return its path."""
    run = RunFolder(folder)
    run.check_settings()
    remove_leftovers_of(folder / REPORT)
    write_text(folder / REPORT, render("report.html.jinja", **_context(run)))
    return folder / REPORT


def verdict(folder: Path) -> str:
    """Return the result of the run as a sentence."""
    return scores.verdict_of(RunFolder(folder))


def verdict_lines(folder: Path) -> list[str]:
    """Return the verdict, a line per test set (of several) and auxiliary task, and a note on constant predictions."""
    run = RunFolder(folder)
    note = scores.constant_prediction_note(run)
    return [
        scores.verdict_of(run),
        *(f"  {sentence}" for sentence in baselines.baseline_sentences(run, most=1)),
        *scores.lines_of_test_sets(run),
        *scores.lines_of_auxiliary_tasks(run),
        *([note] if note else []),
    ]


def summary(folder: Path) -> dict[str, Any]:
    """Return the numbers of the report as plain values, for `--json`."""
    run = RunFolder(folder)
    costs = stage_costs(run)
    return {
        "folder": str(folder),
        "task": run.task_name,
        "verdict": scores.verdict_of(run),
        "finished": list(run.manifests),
        "missing": run.missing,
        "metric": scores.metric_of(run),
        "results": run.results,
        "seeds": [asdict(row) for row in scores.seed_rows(run)],
        "baselines": [asdict(row) | {"is_clear": row.is_clear} for row in baselines.baseline_rows(run)],
        "classes": [asdict(row) for row in _class_scores(run)],
        "objectives": objective_rows(run),
        "cost": {"total": total_cost(costs), "stages": [asdict(cost) for cost in costs]},
        "selection": run.counts("select") or None,
        "corpus": run.counts("retrieve").get("corpus"),
        "latency": run.latency,
    }


def _context(run: RunFolder) -> Context:
    """Return the variables of the template."""
    costs = stage_costs(run)
    evidence = _evidence(run)
    absent = {name for name in ("labels", "calibration", "slices") if not evidence[name]}
    absent |= set() if run.results else {"errors"}
    analysis = analysis_of(run)
    absent |= {"analysis"} if analysis is None else set()
    return {
        **evidence,
        "sections": [(name, title) for name, title in SECTIONS.items() if name not in absent],
        "run": run,
        "headline": headline_of(run),
        "sentence": verdict_sentence(run),
        "tiles": tiles_of(run),
        "notes": scores.notes_of(run),
        "costs": costs,
        "total": total_cost(costs),
        **_corpus(run),
        **_results(run),
        "objectives": objective_rows(run),
        "pretrain_charts": pretrain_charts(run),
        "finetune_charts": finetune_charts(run),
        "versions": _versions(run),
        "analysis": analysis,
        **_use(run),
    }


def _evidence(run: RunFolder) -> Context:
    """Return what follows from the table of predictions; its parts are empty for a run without one."""
    rows = PredictionRows.find(run)
    split = run.results["split"] if run.results else "test"
    if rows is None or run.results is None:
        nothing = dict.fromkeys(("errors", "labels", "calibration", "slices", "coverage_chart", "text_map"))
        return {**nothing, "form": _task_type(run).form, "split": split, "coverages": [], "label_checks": []}
    candidates = rows.candidates()
    return {
        "form": rows.form,
        "split": split,
        "errors": errors.errors_of(run, rows),
        "labels": rows.form != "numbers",
        "label_checks": errors.label_checks(run, rows, candidates),
        "candidates": len(candidates),
        "calibration": quality.calibration_section(run),
        "coverage_chart": quality.coverage_chart(rows),
        "coverages": quality.coverages(rows),
        "slices": quality.slices(rows),
        "text_map": text_map(run, rows),
    }


def _corpus(run: RunFolder) -> Context:
    summary = selection.summarize_selection(run.selected(), run.counts("select").get("passages", 0))
    pairs = selection.explain([*summary.best, *summary.others], run.examples("train"))
    scores_shown = [pair.score for pair in pairs] or [0.0]
    shares = selection.source_shares(run.counts("retrieve").get("corpus", {}), summary)
    return {
        "sources": shares,
        "selection_quality": selection.quality_sentence(run.counts("select")),
        "scoring_models": selection.scoring_models_sentence(run.counts("select")),
        "corpus_notes": selection.corpus_notes(*(run.counts(stage) for stage in ("retrieve", "select", "pack"))),
        "domain_drawn": selection.domain_sentence(run.counts("select")),
        "source_chart": selection.source_chart(shares),
        "pairs": pairs,
        "has_queries": any(pair.example_id for pair in pairs),
        "pair_sources": sorted({pair.source for pair in pairs}),
        "pair_labels": _few(sorted({pair.label for pair in pairs} - {""})),
        "pair_scores": (min(scores_shown), max(scores_shown)),
        "copies": sum(pair.is_copy for pair in pairs),
    }


def _few(labels: list[str]) -> list[str]:
    """Return labels to choose from, none if they are too many for a list."""
    return labels if len(labels) <= _MOST_CHOICES else []


def _task_type(run: RunFolder) -> type[Any]:
    """Return the `TaskType` of a run's task."""
    return task_types.get(str(run.audit["type"]) if run.audit is not None else "text")


def confusion_of(run: RunFolder) -> scores.Confusion:
    """Return the confusion matrix of a single-label task: of the mean of the seeds, or of all seeds pooled."""
    if _task_type(run).form != "classes":
        return scores.Confusion.count(())
    rows = PredictionRows.find(run)
    if rows is None:
        return scores.Confusion.count(run.predictions())
    answers = ((rows.columns["label"][row], rows.columns["predicted"][row]) for row in rows.scored)
    return scores.Confusion.count({"label": label, "predicted": {"mean": answer}} for label, answer in answers)


def _class_scores(run: RunFolder) -> list[scores.ClassScores]:
    """Return the scores of each class, label or type of span."""
    tags = run.audit["labels"] if run.audit else ()
    return scores.class_scores(_task_type(run).form, list(run.predictions()), tags)


def _results(run: RunFolder) -> Context:
    confusion = confusion_of(run)
    return {
        "all_scores": scores.all_scores(run),
        "test_sets": scores.scores_of_test_sets(run),
        "auxiliary_tasks": scores.scores_of_auxiliary_tasks(run),
        "class_scores": _class_scores(run),
        "class_noun": {"tags": "span", "label_sets": "label"}.get(_task_type(run).form, "class"),
        "metric": scores.metric_of(run),
        "seeds": scores.seed_rows(run),
        "baselines": baselines.baseline_rows(run),
        "baseline_sentences": baselines.baseline_sentences(run),
        "confusion": confusion,
        "matrix_fits": len(confusion.labels) <= _MATRIX_LABELS,
        "mistakes": confusion.mistakes(_MISTAKES),
    }


def _versions(run: RunFolder) -> dict[str, str]:
    """Return the versions of all packages; of several versions of a package, each with its stages."""
    by_package: dict[str, dict[str, list[str]]] = {}
    for stage, manifest in run.manifests.items():
        for name, version in manifest["versions"].items():
            by_package.setdefault(name, {}).setdefault(version, []).append(stage)
    return {
        name: next(iter(versions))
        if len(versions) == 1
        else "; ".join(f"{version} ({', '.join(stages)})" for version, stages in versions.items())
        for name, versions in by_package.items()
    }


def _use(run: RunFolder) -> Context:
    """Return the parts of commands to copy, with the folder quoted for the shell and for Python."""
    is_pair = _task_type(run).second_text == "always"
    folder = json.dumps(str(run.path / "model"), ensure_ascii=False)
    name, _, call = _task_type(run).card_call.partition(" = ")
    text = '{"text": "first text", "text_pair": "second text"}' if is_pair else '"a text to classify"'
    return {
        "is_pair": is_pair,
        "shell_folder": shlex.quote(str(run.path)),
        "python_call": f"{name} = {call.replace(MODEL_FOLDER, folder)}\nprint({name}({text}))",
    }
