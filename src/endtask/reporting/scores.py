"""Scores in the report: the verdict and its notes, rows per metric and seed, and scores per class over all seeds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endtask.config.data_usage import DataUse, chosen_by_dev
from endtask.evaluation.metrics.spans import scheme_of, spans_of
from endtask.evaluation.task_metrics import deciding_metrics
from endtask.io.run_layout import TASKS
from endtask.registry import task_types
from endtask.reporting import format as shown
from endtask.reporting.baselines import score_interval
from endtask.reporting.costs import better_weights
from endtask.reporting.run_folder import RunFolder

Tree = dict[str, Any]

_NEARLY_CONSTANT = 0.01  # of the range of the true scores
_SAME_ANSWER = {"tags": "the same tag", "numbers": "nearly the same score", "label_sets": "the same labels"}


@dataclass(frozen=True)
class ClassScores:
    """The scores of a class; `support` counts the rows with this true label, once per seed."""

    label: str
    support: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Confusion:
    """Counts of each true label (rows) and predicted label (columns), pooled over the seeds.

    >>> table = Confusion.count([{"label": "a", "predicted": {"0": "a", "1": "b"}}])
    >>> table.labels, table.at("a", "b"), table.seeds
    (('a', 'b'), 1, 2)
    """

    labels: tuple[str, ...]
    pairs: Mapping[tuple[str, str], int]
    seeds: int

    @classmethod
    def count(cls, predictions: Iterable[Mapping[str, Any]]) -> Confusion:
        """Return the counts of predictions, with labels in alphabetical order."""
        pairs: Counter[tuple[str, str]] = Counter()
        seeds = 0
        for row in predictions:
            seeds = len(row["predicted"])
            pairs.update((row["label"], predicted) for predicted in row["predicted"].values())
        return cls(tuple(sorted({label for pair in pairs for label in pair})), dict(pairs), seeds)

    def at(self, truth: str, predicted: str) -> int:
        """Return how often rows with the label `truth` were predicted as `predicted`."""
        return self.pairs.get((truth, predicted), 0)

    def total(self, truth: str) -> int:
        """Return the number of predictions for rows with this label."""
        return sum(self.at(truth, predicted) for predicted in self.labels)

    def scores(self) -> list[ClassScores]:
        """Return the scores of each class; a ratio with a zero denominator is 0, as in the metrics."""
        return [self._scores_of(label) for label in self.labels]

    def mistakes(self, most: int) -> list[tuple[str, str, int]]:
        """Return the most frequent (true label, wrong prediction, count)."""
        wrong = [(truth, predicted, number) for (truth, predicted), number in self.pairs.items() if truth != predicted]
        return sorted(wrong, key=lambda entry: (-entry[2], entry[0], entry[1]))[:most]

    def _scores_of(self, label: str) -> ClassScores:
        predicted = sum(self.at(truth, label) for truth in self.labels)
        return _class_scores(label, self.total(label), predicted, self.at(label, label))


def label_scores(predictions: Iterable[Mapping[str, Any]]) -> list[ClassScores]:
    """Return the scores of each label of a multilabel task, in alphabetical order.

    >>> [row.f1 for row in label_scores([{"label": ["a", "b"], "predicted": {"0": ["a"], "1": ["a", "b"]}}])]
    [1.0, 0.6666666666666666]
    """
    return _pooled(
        (set(row["label"]), set(predicted)) for row in predictions for predicted in row["predicted"].values()
    )


def span_scores(predictions: Iterable[Mapping[str, Any]], tags: Sequence[str]) -> list[ClassScores]:
    """Return the scores of each type of span, or of each tag if the tags do not form spans."""
    scheme = scheme_of(tags)

    def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
        if scheme != "none":
            return set(spans_of(tags, scheme))
        return {(tag, index, index + 1) for index, tag in enumerate(tags)}

    return _pooled(
        (spans(row["label"]), spans(predicted)) for row in predictions for predicted in row["predicted"].values()
    )


def class_scores(form: str, predictions: Sequence[Mapping[str, Any]], tags: Sequence[str]) -> list[ClassScores]:
    """Return the scores of each class, label or type of span of answers of this form; of numbers none."""
    if form == "tags":
        return span_scores(predictions, tags)
    if form == "label_sets":
        return label_scores(predictions)
    return Confusion.count(predictions).scores() if form == "classes" else []


def _pooled(pairs: Iterable[tuple[set[Any], set[Any]]]) -> list[ClassScores]:
    """Return the scores of each label, or of each type of span, from pairs of true and predicted sets."""
    true_counts: Counter[str] = Counter()
    predicted_counts: Counter[str] = Counter()
    correct_counts: Counter[str] = Counter()
    for truth, predicted in pairs:
        sets = ((true_counts, truth), (predicted_counts, predicted), (correct_counts, truth & predicted))
        for counts, items in sets:
            counts.update(item if isinstance(item, str) else item[0] or "span" for item in items)
    names = sorted({*true_counts, *predicted_counts})
    return [_class_scores(name, true_counts[name], predicted_counts[name], correct_counts[name]) for name in names]


def _class_scores(label: str, support: int, predicted: int, correct: int) -> ClassScores:
    return ClassScores(
        label,
        support,
        precision=correct / predicted if predicted else 0.0,
        recall=correct / support if support else 0.0,
        f1=2 * correct / (support + predicted) if support + predicted else 0.0,
    )


@dataclass(frozen=True)
class SeedRow:
    """A fine-tuning seed: its best dev score and step, and the test scores of those weights."""

    seed: int
    dev: float
    best_step: int
    score: float | None
    leak_free: float | None


@dataclass(frozen=True)
class ScoreRow:
    """A metric with its mean and standard deviation over the seeds."""

    metric: str
    mean: float
    std: float


def verdict_of(run: RunFolder) -> str:
    """Return a sentence with score, standard deviation, split, rows and seeds."""
    if run.results is None:
        finished = ", ".join(run.manifests) or "none"
        return f"{run.task_name}: not evaluated yet; finished stages: {finished}."
    results, summary = run.results, run.results["summary"]
    seeds = len(results["seeds"])
    mean = shown.score_with_spread(summary["mean"], summary["std"], seeds)
    details = [shown.plural(results["rows"], "row"), shown.plural(seeds, "seed")]
    if interval := score_interval(run):
        details.append(f"95% interval {shown.score(interval[0])} to {shown.score(interval[1])}")
    where = f"{results['split']} ({', '.join(details)})"
    return f"{run.task_name}: {shown.metric_name(summary['metric'])} {mean} on {where}{_leak_free_score(results)}."


def notes_of(run: RunFolder) -> list[str]:
    """Return the caveats that a reader of the verdict needs."""
    if run.results is None:
        return []
    results = run.results
    notes = [note] if (note := constant_prediction_note(run)) else []
    notes.append(_leak_note(results))
    if results["split"] == "dev":
        notes.append("There is no test split, and dev also chose the epoch, so the score is biased upwards.")
    if len(results["seeds"]) == 1:
        notes.append("A single seed says nothing about how much the score varies.")
    else:
        notes.append("± is the standard deviation over the fine-tuning seeds; pre-training ran once.")
    uses = (DataUse(**use) for use in run.counts("pretrain").get("uses", []))
    notes += map(_as_sentence, chosen_by_dev(uses))
    if better := better_weights(run.counts("finetune")):
        notes.append(_as_sentence(better))
    return notes


def _as_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def metric_of(run: RunFolder) -> str:
    """Return the metric of the verdict, which also chooses the epoch."""
    if run.results is not None:
        return str(run.results["summary"]["metric"])
    metric = str(run.settings.get("evaluate", {}).get("metric", "accuracy"))
    if metric != "auto":
        return metric
    return deciding_metrics(run.audit["type"], run.audit["labels"])[0] if run.audit is not None else "macro_f1"


def all_scores(run: RunFolder) -> list[ScoreRow]:
    """Return mean and standard deviation over the seeds of every score, the main metric first."""
    if run.results is None:
        return []
    seeds, metric = run.results["seeds"], metric_of(run)
    names = sorted(seeds[0]["scores"], key=lambda name: name != metric)
    return [ScoreRow(name, *_mean_and_spread([seed["scores"][name] for seed in seeds])) for name in names]


def scores_of_test_sets(run: RunFolder) -> dict[str, Tree]:
    """Return rows, mean and standard deviation of each of several test sets, and of their mean."""
    sets: dict[str, Tree] = dict((run.results or {}).get("test_sets", {}))
    if sets and run.results is not None:
        sets["mean of the sets"] = {"rows": run.results["rows"], "mean": run.results["mean_of_test_sets"], "std": None}
    return sets


def lines_of_test_sets(run: RunFolder) -> list[str]:
    """Return a line for each of several test sets, and for their mean."""
    metric = shown.metric_name(metric_of(run))
    lines = []
    for name, entry in scores_of_test_sets(run).items():
        seeds = len(run.results["seeds"]) if run.results and entry["std"] is not None else 1
        mean = shown.score_with_spread(entry["mean"], entry["std"] or 0.0, seeds)
        lines.append(f"  {name}: {metric} {mean} ({shown.plural(entry['rows'], 'row')})")
    return lines


def scores_of_auxiliary_tasks(run: RunFolder) -> dict[str, Tree]:
    """Return the results of the auxiliary tasks by name."""
    return dict((run.results or {}).get(TASKS, {}))


def lines_of_auxiliary_tasks(run: RunFolder) -> list[str]:
    """Return a line for each auxiliary task, like the verdict."""
    lines = []
    for name, results in scores_of_auxiliary_tasks(run).items():
        summary, seeds = results["summary"], len(results["seeds"])
        mean = shown.score_with_spread(summary["mean"], summary["std"], seeds)
        where = f"{results['split']} ({shown.plural(results['rows'], 'row')})"
        lines.append(f"  {name}: {shown.metric_name(summary['metric'])} {mean} on {where}{_leak_free_score(results)}")
    return lines


def _mean_and_spread(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def seed_rows(run: RunFolder) -> list[SeedRow]:
    """Return a row per fine-tuning seed; its scores are None before evaluation."""
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


def _leak_free_score(results: Tree) -> str:
    """Return the leak-free score if some rows of the split are in train, else an empty text."""
    rows, clean, summary = results["rows"], results["leak_free_rows"], results["summary"]
    if clean == rows:
        return ""
    if clean == 0:
        return "; all of these rows are also in train"
    mean = shown.score_with_spread(summary["leak_free_mean"], summary["leak_free_std"], len(results["seeds"]))
    return f"; {mean} on the {shown.plural(clean, 'row')} whose text is not in train"


def _leak_note(results: Tree) -> str:
    rows, clean, split = results["rows"], results["leak_free_rows"], results["split"]
    if clean == rows:
        return f"No text of {split} is in train, so there is only one score."
    if clean == 0:
        return f"All {rows:,} rows of {split} are also in train: the score says nothing about new texts."
    return (
        f"{rows - clean:,} of the {rows:,} rows of {split} are also in train, where a model can memorize them."
        f" The score on the other {clean:,} says more about new texts."
    )


def constant_prediction_note(run: RunFolder) -> str | None:
    """Return a note if a model predicts the same for all rows; None otherwise, or if all true labels are equal."""
    if run.results is None or run.audit is None:
        return None
    form = str(task_types.get(run.audit["type"]).form)
    truth, by_seed = _distinct_values(run.predictions(), form)
    constant = [values for values in by_seed.values() if len(truth) > 1 and _is_constant(values, truth, form)]
    if not constant:
        return None
    every = "Every" if len(by_seed) == 1 else f"With {len(constant)} of {len(by_seed)} seeds every"
    unit, same = "token" if form == "tags" else "row", _SAME_ANSWER.get(form, "the same label")
    predicted = " or ".join(dict.fromkeys(_describe(values, form) for values in constant))
    meaning = "hardly distinguishes them" if form == "numbers" else "has learned nothing that distinguishes them"
    return f"{every} {unit} of {run.results['split']} got {same}, {predicted}: the model {meaning}."


def _distinct_values(rows: Iterable[Mapping[str, Any]], form: str) -> tuple[set[Any], dict[str, set[Any]]]:
    """Return the distinct true values, and the distinct predictions of each seed."""
    truth: set[Any] = set()
    by_seed: dict[str, set[Any]] = {}
    for row in rows:
        truth.update(_values(row["label"], form))
        for seed, predicted in row["predicted"].items():
            by_seed.setdefault(seed, set()).update(_values(predicted, form))
    return truth, by_seed


def _values(label: Any, form: str) -> Iterable[Any]:
    """Return the values to compare: each of a row's tags, the set of its labels, its class, or its score."""
    if form == "tags":
        return list(label)
    return [tuple(sorted(label))] if form == "label_sets" else [label]


def _is_constant(values: Collection[Any], truth: Collection[Any], form: str) -> bool:
    if form == "numbers":
        return bool(max(values) - min(values) <= _NEARLY_CONSTANT * (max(truth) - min(truth)))
    return len(values) == 1


def _describe(values: Collection[Any], form: str) -> str:
    """Return the constant prediction as text.

    >>> _describe({("a", "b")}, "label_sets"), _describe({()}, "label_sets"), _describe({2.4121, 2.4123}, "numbers")
    ("'a', 'b'", 'none', 'about 2.41')
    """
    if form == "numbers":
        return f"about {(max(values) + min(values)) / 2:.3g}"
    (value,) = values
    return (", ".join(map(repr, value)) or "none") if form == "label_sets" else repr(value)
