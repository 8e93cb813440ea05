"""How each class fares: precision, recall, F1, and which class is taken for which, over the answers of all seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endtask.evaluate.metrics import score_all


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


def constant_answer_score(truth: Sequence[str], answer: str, metric: str) -> float:
    """What always giving one answer scores: the least that a model has to beat.

    >>> constant_answer_score(["a", "a", "b", "c"], "a", "accuracy")
    0.5
    """
    number = {label: place for place, label in enumerate(sorted({*truth, answer}))}
    return score_all([number[label] for label in truth], [number[answer]] * len(truth))[metric]
