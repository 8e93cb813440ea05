"""How each class fares: precision, recall, F1, and which class is taken for which, over the answers of all seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endtask.evaluation.spans import scheme_of, spans_of
from endtask.evaluation.task_metrics import Measure, positive_class


@dataclass(frozen=True)
class ClassScores:
    """The figures of one class; `answers` counts rows times seeds whose true label it is."""

    label: str
    answers: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Confusion:
    """How often each true label (rows) got each answer (columns), pooled over the seeds.

    >>> table = Confusion.count([{"label": "a", "predicted": {"0": "a", "1": "b"}}])
    >>> table.labels, table.at("a", "b"), table.seeds
    (('a', 'b'), 1, 2)
    """

    labels: tuple[str, ...]
    pairs: Mapping[tuple[str, str], int]
    seeds: int

    @classmethod
    def count(cls, predictions: Iterable[Mapping[str, Any]]) -> Confusion:
        """Count predictions; labels stand in alphabetical order."""
        pairs: Counter[tuple[str, str]] = Counter()
        seeds = 0
        for row in predictions:
            seeds = len(row["predicted"])
            pairs.update((row["label"], answer) for answer in row["predicted"].values())
        return cls(tuple(sorted({label for pair in pairs for label in pair})), dict(pairs), seeds)

    def at(self, truth: str, answer: str) -> int:
        """How often rows with the label `truth` were answered `answer`."""
        return self.pairs.get((truth, answer), 0)

    def total(self, truth: str) -> int:
        """How many answers were given for rows with this label."""
        return sum(self.at(truth, answer) for answer in self.labels)

    def scores(self) -> list[ClassScores]:
        """Each class's figures; a ratio with nothing below the line is 0, as in the metrics."""
        return [self._scores_of(label) for label in self.labels]

    def mistakes(self, most: int) -> list[tuple[str, str, int]]:
        """The most frequent (true label, wrong answer, count)."""
        wrong = [(truth, answer, number) for (truth, answer), number in self.pairs.items() if truth != answer]
        return sorted(wrong, key=lambda entry: (-entry[2], entry[0], entry[1]))[:most]

    def _scores_of(self, label: str) -> ClassScores:
        right = self.at(label, label)
        answers = self.total(label)
        answered = sum(self.at(truth, label) for truth in self.labels)
        return ClassScores(
            label,
            answers,
            precision=right / answered if answered else 0.0,
            recall=right / answers if answers else 0.0,
            f1=2 * right / (answers + answered) if answers + answered else 0.0,
        )


def label_scores(predictions: Iterable[Mapping[str, Any]]) -> list[ClassScores]:
    """The figures of each label where a row may have several, in alphabetical order.

    >>> [row.f1 for row in label_scores([{"label": ["a", "b"], "predicted": {"0": ["a"], "1": ["a", "b"]}}])]
    [1.0, 0.6666666666666666]
    """
    return _pooled((set(row["label"]), set(answer)) for row in predictions for answer in row["predicted"].values())


def span_scores(predictions: Iterable[Mapping[str, Any]], tags: Sequence[str]) -> list[ClassScores]:
    """The figures of each type of span, or of each tag where tags make no spans."""
    scheme = scheme_of(tags)

    def things(answer: Sequence[str]) -> set[tuple[str, int, int]]:
        if scheme != "none":
            return set(spans_of(answer, scheme))
        return {(tag, place, place + 1) for place, tag in enumerate(answer)}

    return _pooled(
        (things(row["label"]), things(answer)) for row in predictions for answer in row["predicted"].values()
    )


def _pooled(pairs: Iterable[tuple[set[Any], set[Any]]]) -> list[ClassScores]:
    """The figures of each name from what is true and what was given; of spans the type is the name."""
    true: Counter[str] = Counter()
    given: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for wanted, found in pairs:
        for counts, things in ((true, wanted), (given, found), (right, wanted & found)):
            counts.update(thing if isinstance(thing, str) else thing[0] or "span" for thing in things)
    return [
        ClassScores(
            name,
            true[name],
            precision=right[name] / given[name] if given[name] else 0.0,
            recall=right[name] / true[name] if true[name] else 0.0,
            f1=2 * right[name] / (true[name] + given[name]),
        )
        for name in sorted({*true, *given})
    ]


def constant_answer_score(
    truth: Sequence[str], answer: str, metric: str, *, labels: Sequence[str] = (), positive_label: str | None = None
) -> float:
    """What always giving one answer scores: the least that a model has to beat.

    >>> constant_answer_score(["a", "a", "b", "c"], "a", "accuracy")
    0.5
    """
    names = tuple(sorted({*labels, *truth, answer}))
    number = {label: place for place, label in enumerate(names)}
    measure = Measure(metric, "text", names, positive_class(names, positive_label))
    return measure.score([number[label] for label in truth], [number[answer]] * len(truth))
