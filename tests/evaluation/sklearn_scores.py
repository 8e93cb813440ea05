"""Scores of predicted classes; scikit-learn does the counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Classes = Sequence[int] | NDArray[np.int64]


def score_all(truth: Classes, predicted: Classes) -> dict[str, float]:
    """Every metric by name.

    Macro-F1 averages over the classes that occur in truth or prediction, as in the papers' evaluation code.

    >>> score_all([0, 1, 1], [0, 1, 0])["accuracy"]
    0.6666666666666666
    """
    return {name: float(metric(truth, predicted)) for name, metric in METRICS.items()}


def _accuracy(truth: Classes, predicted: Classes) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(truth, predicted))


def _micro_f1(truth: Classes, predicted: Classes) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, predicted, average="micro", zero_division=0))


def _macro_f1(truth: Classes, predicted: Classes) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(truth, predicted, average="macro", zero_division=0))


def _matthews(truth: Classes, predicted: Classes) -> float:
    from sklearn.metrics import matthews_corrcoef

    if len({*truth, *predicted}) == 1:  # it would warn
        return 0.0
    return float(matthews_corrcoef(truth, predicted))


METRICS: dict[str, Callable[[Classes, Classes], float]] = {
    "accuracy": _accuracy,
    "micro_f1": _micro_f1,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
}
