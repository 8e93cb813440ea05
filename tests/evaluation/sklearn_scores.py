"""Scores of predicted classes by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]
Classes = Sequence[int] | Labels


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
