"""Per-class scores: precision, recall, F1 and the confusion matrix over the predictions of all seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endtask.evaluation.metrics.spans import scheme_of, spans_of
from endtask.evaluation.task_metrics import Measure, positive_class


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class; `support` counts the rows with this true label, once per seed."""

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
        """Count predictions; labels are in alphabetical order."""
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
    """Return the scores of each label where a row may have several, in alphabetical order.

    >>> [row.f1 for row in label_scores([{"label": ["a", "b"], "predicted": {"0": ["a"], "1": ["a", "b"]}}])]
    [1.0, 0.6666666666666666]
    """
    return _pooled(
        (set(row["label"]), set(predicted)) for row in predictions for predicted in row["predicted"].values()
    )


def span_scores(predictions: Iterable[Mapping[str, Any]], tags: Sequence[str]) -> list[ClassScores]:
    """Return the scores of each type of span, or of each tag where the tags do not form spans."""
    scheme = scheme_of(tags)

    def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
        if scheme != "none":
            return set(spans_of(tags, scheme))
        return {(tag, index, index + 1) for index, tag in enumerate(tags)}

    return _pooled(
        (spans(row["label"]), spans(predicted)) for row in predictions for predicted in row["predicted"].values()
    )


def _pooled(pairs: Iterable[tuple[set[Any], set[Any]]]) -> list[ClassScores]:
    """Return the scores of each label, or of each type of span, from pairs of true and predicted sets."""
    true: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for wanted, found in pairs:
        for counts, items in ((true, wanted), (predicted, found), (right, wanted & found)):
            counts.update(item if isinstance(item, str) else item[0] or "span" for item in items)
    names = sorted({*true, *predicted})
    return [_class_scores(name, true[name], predicted[name], right[name]) for name in names]


def _class_scores(label: str, support: int, predicted: int, right: int) -> ClassScores:
    return ClassScores(
        label,
        support,
        precision=right / predicted if predicted else 0.0,
        recall=right / support if support else 0.0,
        f1=2 * right / (support + predicted) if support + predicted else 0.0,
    )


def constant_prediction_score(
    truth: Sequence[str], label: str, metric: str, *, labels: Sequence[str] = (), positive_label: str | None = None
) -> float:
    """Return the score of always predicting one label.

    >>> constant_prediction_score(["a", "a", "b", "c"], "a", "accuracy")
    0.5
    """
    names = tuple(sorted({*labels, *truth, label}))
    number = {name: index for index, name in enumerate(names)}
    measure = Measure(metric, "text", names, positive_class(names, positive_label))
    return measure.score([number[name] for name in truth], [number[label]] * len(truth))
