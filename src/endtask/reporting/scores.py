"""The run's scores in words and rows: the verdict, what the leak-free score means, one row per seed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from endtask.config.data_usage import DataUse, chosen_by_dev
from endtask.evaluation.task_metrics import deciding_metrics
from endtask.io.run_layout import TASKS
from endtask.registry import task_types
from endtask.reporting import format as shown
from endtask.reporting.classes import constant_answer_score
from endtask.reporting.constant_predictions import same_answer
from endtask.reporting.costs import better_weights
from endtask.reporting.run_folder import RunFolder

Tree = dict[str, Any]


@dataclass(frozen=True)
class SeedRow:
    """One fine-tuning seed: its best dev score and the step of it, then the scores of the weights from there."""

    seed: int
    dev: float
    best_step: int
    score: float | None
    leak_free: float | None


@dataclass(frozen=True)
class ScoreRow:
    """A metric with its mean over the seeds."""

    metric: str
    mean: float
    std: float


@dataclass(frozen=True)
class ConstantAnswer:
    """What always answering the most frequent label of train would score."""

    label: str
    score: float


def verdict_of(run: RunFolder) -> str:
    """One sentence: how well the model does, on how much, and how sure that is."""
    if run.results is None:
        finished = ", ".join(run.manifests) or "none"
        return f"{run.task_name}: not evaluated yet; finished stages: {finished}."
    results, summary = run.results, run.results["summary"]
    seeds = len(results["seeds"])
    mean = shown.score_with_spread(summary["mean"], summary["std"], seeds)
    where = f"{results['split']} ({shown.plural(results['rows'], 'row')}, {shown.plural(seeds, 'seed')})"
    return f"{run.task_name}: {shown.metric_name(summary['metric'])} {mean} on {where}{_leak_free_half(results)}."


def notes_of(run: RunFolder) -> list[str]:
    """What a reader of the verdict has to know to judge it."""
    if run.results is None:
        return []
    results = run.results
    notes = [same] if (same := same_answer(run)) else []
    notes.append(_leak_note(results))
    if results["split"] == "dev":
        notes.append("There is no test split, and dev also chose the epoch, so the score is somewhat too high.")
    if len(results["seeds"]) == 1:
        notes.append("A single seed says nothing about how much the score varies.")
    else:
        notes.append("± is the standard deviation over the fine-tuning seeds; pre-training ran once.")
    uses = (DataUse(**use) for use in run.counts("pretrain").get("uses", []))
    notes += map(_as_sentence, chosen_by_dev(uses))
    if kept := better_weights(run.counts("finetune")):
        notes.append(_as_sentence(kept))
    return notes


def _as_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def constant_answer(run: RunFolder) -> ConstantAnswer | None:
    """The score of always answering train's most frequent label, once evaluated and if the audit is there."""
    if run.results is None or run.audit is None or task_types.get(run.audit["type"]).form != "classes":
        return None
    counts = run.audit["splits"]["train"]["labels"]
    label = max(counts, key=lambda name: counts[name])
    truth = [row["label"] for row in run.predictions()]
    if not truth:
        return None
    labels, positive = run.audit["labels"], run.settings.get("evaluate", {}).get("positive_label")
    score = constant_answer_score(truth, label, metric_of(run), labels=labels, positive_label=positive)
    return ConstantAnswer(label, score)


def metric_of(run: RunFolder) -> str:
    """The metric that chose the epoch and stands in the verdict."""
    if run.results is not None:
        return str(run.results["summary"]["metric"])
    asked = str(run.settings.get("evaluate", {}).get("metric", "accuracy"))
    if asked != "auto":
        return asked
    return deciding_metrics(run.audit["type"], run.audit["labels"])[0] if run.audit is not None else "macro_f1"


def all_scores(run: RunFolder) -> list[ScoreRow]:
    """Every score of the evaluated split, mean and spread over the seeds; the deciding one first."""
    if run.results is None:
        return []
    seeds, metric = run.results["seeds"], metric_of(run)
    names = sorted(seeds[0]["scores"], key=lambda name: name != metric)
    return [ScoreRow(name, *_mean_and_spread([seed["scores"][name] for seed in seeds])) for name in names]


def scores_of_test_sets(run: RunFolder) -> dict[str, Tree]:
    """Rows, mean and spread of each test set where there are several, and their mean under the name `mean`."""
    sets: dict[str, Tree] = dict((run.results or {}).get("test_sets", {}))
    if sets and run.results is not None:
        sets["mean of the sets"] = {"rows": run.results["rows"], "mean": run.results["mean_of_test_sets"], "std": None}
    return sets


def lines_of_test_sets(run: RunFolder) -> list[str]:
    """A line for each test set where there are several, and for their mean."""
    metric = shown.metric_name(metric_of(run))
    lines = []
    for name, entry in scores_of_test_sets(run).items():
        seeds = len(run.results["seeds"]) if run.results and entry["std"] is not None else 1
        mean = shown.score_with_spread(entry["mean"], entry["std"] or 0.0, seeds)
        lines.append(f"  {name}: {metric} {mean} ({shown.plural(entry['rows'], 'row')})")
    return lines


def scores_of_auxiliary_tasks(run: RunFolder) -> dict[str, Tree]:
    """Results of the auxiliary tasks that the model answers, by name."""
    return dict((run.results or {}).get(TASKS, {}))


def lines_of_auxiliary_tasks(run: RunFolder) -> list[str]:
    """A line for each auxiliary task, as the verdict has one for the end task."""
    lines = []
    for name, results in scores_of_auxiliary_tasks(run).items():
        summary, seeds = results["summary"], len(results["seeds"])
        mean = shown.score_with_spread(summary["mean"], summary["std"], seeds)
        where = f"{results['split']} ({shown.plural(results['rows'], 'row')})"
        lines.append(f"  {name}: {shown.metric_name(summary['metric'])} {mean} on {where}{_leak_free_half(results)}")
    return lines


def _mean_and_spread(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def seed_rows(run: RunFolder) -> list[SeedRow]:
    """One row per fine-tuned seed; scores are absent before evaluation."""
    metric = metric_of(run)
    scored = {row["seed"]: row for row in run.results["seeds"]} if run.results else {}
    return [
        SeedRow(
            result["seed"],
            result["dev"][metric],
            result["best_step"],
            scored.get(result["seed"], {}).get("scores", {}).get(metric),
            scored.get(result["seed"], {}).get("leak_free_scores", {}).get(metric),
        )
        for result in run.counts("finetune").get("seeds", [])
    ]


def _leak_free_half(results: Tree) -> str:
    """The leak-free score, where it differs in rows from the plain one."""
    rows, clean, summary = results["rows"], results["leak_free_rows"], results["summary"]
    if clean == rows:
        return ""
    if clean == 0:
        return "; every one of these rows also stands in train"
    mean = shown.score_with_spread(summary["leak_free_mean"], summary["leak_free_std"], len(results["seeds"]))
    return f"; {mean} on the {shown.plural(clean, 'row')} whose text does not stand in train"


def _leak_note(results: Tree) -> str:
    rows, clean, split = results["rows"], results["leak_free_rows"], results["split"]
    if clean == rows:
        return f"No text of {split} stands in train, so there is only one score."
    if clean == 0:
        return f"All {rows:,} rows of {split} also stand in train: the score says nothing about new texts."
    return (
        f"{rows - clean:,} of the {rows:,} rows of {split} also stand in train, where a model can learn them by"
        f" heart. The score on the other {clean:,} says more about new texts."
    )
