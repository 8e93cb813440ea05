"""Candidates for wrong labels: the rule of confident learning (Northcutt et al., 2021) on out-of-sample probabilities.

A label's threshold is the mean probability of the label over the answers that have it. An answer is a candidate if
another label reaches its threshold and is more probable than the given label. `cleanlab` is the oracle of the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class LabelIssue:
    """An answer whose label may be wrong: its index and the suggested class.

    `margin` is the probability of the given label minus that of the suggested one: the lower, the surer.
    """

    index: int
    suggested: int
    margin: float


def label_issues(probabilities: Floats, labels: Indices) -> list[LabelIssue]:
    """Return the candidates for wrong labels, the surest first: probabilities (answers, classes), labels (answers,).

    >>> sure = np.array([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4)
    >>> label_issues(sure, np.array([0, 0, 0, 1, 1, 1, 1, 1]))
    [LabelIssue(index=3, suggested=0, margin=-0.8)]
    """
    thresholds = _thresholds(probabilities, labels)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    suggested = confident.argmax(axis=1)
    rows = np.arange(len(labels))
    margins = probabilities[rows, labels] - probabilities[rows, suggested]
    is_issue = (confident.max(axis=1) > 0) & (suggested != labels) & (probabilities.argmax(axis=1) != labels)
    found = np.flatnonzero(is_issue)
    order = found[np.argsort(margins[found], kind="stable")]
    return [LabelIssue(int(row), int(suggested[row]), round(float(margins[row]), 6)) for row in order]


def _thresholds(probabilities: Floats, labels: Indices) -> Floats:
    """Return the mean probability of each class over the answers that have it; infinite for a class without answers."""
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    own = np.bincount(labels, weights=probabilities[np.arange(len(labels)), labels], minlength=probabilities.shape[1])
    means: Floats = np.where(counts > 0, own / np.maximum(counts, 1), np.inf)
    return means
