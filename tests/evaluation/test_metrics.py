"""Metrics against tables worked out by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from endtask.config import EvaluateSettings
from endtask.registry import task_types
from tests.evaluation.sklearn_scores import METRICS, score_all

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("truth", "predicted", "accuracy", "macro_f1"),
    [
        ([0, 1, 2], [0, 1, 2], 1.0, 1.0),
        ([0, 0, 1, 1], [1, 1, 0, 0], 0.0, 0.0),
        # class 0: precision 2/3, recall 2/2, F1 0.8; class 1: precision 1/1, recall 1/2, F1 2/3
        ([0, 0, 1, 1], [0, 0, 0, 1], 0.75, (0.8 + 2 / 3) / 2),
        # class 2 is never predicted (F1 0), class 3 never true (F1 0); class 0: F1 2/3
        ([0, 0, 2], [0, 3, 3], 1 / 3, (2 / 3 + 0 + 0) / 3),
        # a class that occurs nowhere does not count
        ([0, 0, 5], [0, 0, 5], 1.0, 1.0),
    ],
)
def test_by_hand(truth: list[int], predicted: list[int], accuracy: float, macro_f1: float) -> None:
    scores = score_all(truth, predicted)
    assert scores["accuracy"] == pytest.approx(accuracy)
    assert scores["macro_f1"] == pytest.approx(macro_f1)
    assert scores["micro_f1"] == pytest.approx(accuracy), "with one label per text micro-F1 is accuracy"


def f1_by_counting(truth: list[int], predicted: list[int], label: int) -> float:
    right = sum(t == p == label for t, p in zip(truth, predicted, strict=True))
    return 2 * right / (truth.count(label) + predicted.count(label))


@given(ROWS)
@settings(max_examples=50, deadline=None)
def test_against_counting_and_scikit_learn(rows: list[tuple[int, int]]) -> None:
    truth, predicted = [row[0] for row in rows], [row[1] for row in rows]
    classes = sorted({*truth, *predicted})
    scores = score_all(np.asarray(truth), np.asarray(predicted))
    by_class = [f1_by_counting(truth, predicted, label) for label in classes]
    assert scores["macro_f1"] == pytest.approx(sum(by_class) / len(classes))
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, predicted))
    assert scores["micro_f1"] == pytest.approx(f1_score(truth, predicted, average="micro"))
    assert all(type(score) is float and -1 <= score <= 1 for score in scores.values())


def test_the_settings_offer_exactly_the_metrics_of_all_kinds() -> None:
    for name in {
        "auto",
        *METRICS,
        *(name for kind in task_types.names() for name in task_types.get(kind).preferred_metrics),
    }:
        assert EvaluateSettings.model_validate({"metric": name}).metric == name
    for name in ("f2", "rmse", "perplexity"):
        with pytest.raises(ValueError, match="metric"):
            EvaluateSettings.model_validate({"metric": name})
