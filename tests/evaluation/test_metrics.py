"""Scores from counts against scikit-learn, for each run and each weighting of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from endtask.config import EvaluateSettings
from endtask.errors import InputError
from endtask.evaluation.task_metrics import Measure, score_runs
from endtask.registry import task_types
from tests.evaluation.sklearn_scores import METRICS, Labels


@st.composite
def systems(draw: st.DrawFn) -> tuple[Labels, Labels]:
    """Predictions of one to three runs and the truth; some classes occur in one of them only, or nowhere."""
    rows, runs = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    named = draw(arrays(np.int64, (runs, rows), elements=st.sampled_from([0, 1, 2, 5, 9])))
    return named, draw(arrays(np.int64, rows, elements=st.sampled_from([0, 1, 3, 5])))


@pytest.mark.parametrize("metric", METRICS)
@given(case=systems())
@settings(max_examples=25, deadline=None)
def test_each_run_scores_as_scikit_learn_says(metric: str, case: tuple[Labels, Labels]) -> None:
    predicted, truth = case
    expected = [METRICS[metric](truth, run) for run in predicted]
    assert score_runs(predicted, truth, metric) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
@given(case=systems(), data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_weight_is_a_number_of_copies(metric: str, case: tuple[Labels, Labels], data: st.DataObject) -> None:
    predicted, truth = case
    copies = data.draw(arrays(np.int64, (len(truth), 3), elements=st.integers(0, 3)))
    copies[0] += 1  # at least one row
    counts = Measure(metric).counted(predicted, truth)
    scores = counts.scores(counts.weighted(copies))
    for draw in range(3):
        rows = np.repeat(np.arange(len(truth)), copies[:, draw])
        expected = [METRICS[metric](truth[rows], run[rows]) for run in predicted]
        assert scores[:, draw] == pytest.approx(expected, abs=1e-12)


def test_a_single_run_may_be_flat_and_groups_count_as_runs() -> None:
    assert score_runs([0, 1], [0, 0], "accuracy").tolist() == [0.5]
    assert score_runs([[[0, 1], [0, 0]], [[1, 1], [0, 1]]], [0, 0], "accuracy").tolist() == [0.5, 1.0, 0.0, 0.5]


def test_many_rows_and_classes_are_held_in_parts() -> None:
    random = np.random.default_rng(0)
    metric = Measure("accuracy")
    large = metric.counted(random.integers(0, 500, (30, 2000)), random.integers(0, 500, 2000))
    assert 1 <= large.draws_at_once < metric.counted(np.zeros((1, 20), int), np.zeros(20, int)).draws_at_once


def test_an_unknown_metric_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"metric 'macro-f1' \(did you mean 'macro_f1'\?\)"):
        score_runs([0], [0], "macro-f1")


@pytest.mark.parametrize(
    ("predicted", "truth", "words"),
    [
        ([0, 1], [], "truth of shape"),
        ([0, 1], [[0, 1]], "truth of shape"),
        ([0, 1, 1], [0, 1], "do not fit 2 rows"),
        (np.zeros((0, 2)), [0, 1], "do not fit 2 rows"),
        (np.zeros((1, 1, 1, 2)), [0, 1], "do not fit 2 rows"),
    ],
)
def test_shapes_that_do_not_fit(predicted: object, truth: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        score_runs(predicted, truth, "accuracy")  # type: ignore[arg-type]


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
