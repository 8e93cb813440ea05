"""What a trained model predicts for one text, by the type of its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """The most probable label, and the probability of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return f"{self.label}\t{self.probability:.4f}"


@dataclass(frozen=True)
class Score:
    """A number on the scale of the training data."""

    score: float

    def __str__(self) -> str:
        return f"{self.score:.4f}"


@dataclass(frozen=True)
class LabelSet:
    """All labels that are probable enough, and the probability of every label."""

    labels: tuple[str, ...]
    probabilities: dict[str, float]

    def __str__(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True)
class Tagged:
    """A tag for each word, its probability (0 for a word that was cut off), and the spans that the tags make."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    spans: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))


Answer = Prediction | Score | LabelSet | Tagged
