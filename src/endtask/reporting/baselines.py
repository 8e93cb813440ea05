"""The baselines of a run in the report: constant predictions and a bag of words, compared with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endtask.reporting import format as shown
from endtask.reporting.run_folder import RunFolder

LEVEL = 0.05
"""A difference is clear if its p-value is below this level and its interval leaves out 0."""


@dataclass(frozen=True)
class BaselineRow:
    """A baseline's score, and the model's mean score minus it, with the interval over rows and seeds."""

    name: str
    description: str
    score: float
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def is_clear(self) -> bool:
        """Whether test and interval both show a difference between model and baseline."""
        return self.p_value < LEVEL and not self.low <= 0 <= self.high


def baseline_rows(run: RunFolder) -> list[BaselineRow]:
    """Return the baselines of an evaluated run, the strongest first."""
    stored: dict[str, Any] = (run.results or {}).get("baselines", {})
    rows = [
        BaselineRow(
            name,
            baseline["description"],
            baseline["score"],
            baseline["difference"],
            baseline["interval"][0],
            baseline["interval"][1],
            baseline["p_value"],
        )
        for name, baseline in stored.items()
        if name != "interval"
    ]
    return sorted(rows, key=lambda row: -row.score)


def score_interval(run: RunFolder) -> tuple[float, float] | None:
    """Return the 95% interval of the mean score over rows and seeds, or None for a run without it."""
    ends = (run.results or {}).get("baselines", {}).get("interval")
    return (ends[0], ends[1]) if ends else None


def baseline_sentences(run: RunFolder, *, most: int | None = None) -> list[str]:
    """Return a sentence for each of the strongest baselines, and advice if the model is not above the strongest."""
    rows = baseline_rows(run)[:most]
    sentences = [baseline_sentence(row) for row in rows]
    if rows and rows[0].difference <= 0:
        sentences.append(
            "The model is not better than this baseline: a larger --budget, more corpus text or a pre-trained "
            "checkpoint (--set model.path=...) may help."
        )
    return sentences


def baseline_sentence(row: BaselineRow) -> str:
    """Return the comparison as a sentence.

    >>> baseline_sentence(BaselineRow("tfidf", "TF-IDF", 0.392, 0.051, -0.02, 0.122, 0.2))
    'TF-IDF scores 39.2; the model is 5.1 points above it [-2.0, 12.2], p = 0.2: not clearly different.'
    """
    where = "above" if row.difference >= 0 else "below"
    points = f"{shown.score(abs(row.difference))} points {where} it"
    verdict = "clearly different" if row.is_clear else "not clearly different"
    interval = f"[{shown.score(row.low)}, {shown.score(row.high)}]"
    return (
        f"{row.description} scores {shown.score(row.score)}; the model is {points} {interval},"
        f" p = {row.p_value:.2g}: {verdict}."
    )
