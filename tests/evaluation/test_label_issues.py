"""Candidates for wrong labels are those of cleanlab."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from endtask.evaluation.label_issues import label_issues


@pytest.mark.parametrize("seed", range(8))
def test_the_candidates_are_those_of_cleanlab(seed: int) -> None:
    random = np.random.default_rng(seed)
    classes, rows = int(random.integers(2, 6)), int(random.integers(40, 200))
    truth = random.integers(0, classes, rows)
    probabilities = random.dirichlet(np.full(classes, 0.5), rows)
    probabilities[np.arange(rows), truth] += random.uniform(0, 2)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = np.where(random.random(rows) < 0.2, random.integers(0, classes, rows), truth)
    labels[:classes] = np.arange(classes)
    found = label_issues(probabilities, labels)
    assert {issue.index for issue in found} == set(by_cleanlab(labels, probabilities))
    assert [issue.margin for issue in found] == sorted(issue.margin for issue in found)
    assert all(issue.suggested != labels[issue.index] for issue in found)


def by_cleanlab(labels: np.ndarray, probabilities: np.ndarray) -> list[int]:
    filters = pytest.importorskip("cleanlab.filter")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indices = filters.find_label_issues(
            labels, probabilities, filter_by="confident_learning", return_indices_ranked_by="normalized_margin",
            min_examples_per_class=0, n_jobs=1,
        )  # fmt: skip
    return [int(index) for index in indices]


def test_a_class_without_answers_is_never_suggested() -> None:
    probabilities = np.array([[0.2, 0.2, 0.6], [0.5, 0.1, 0.4], [0.1, 0.6, 0.3]])
    assert all(issue.suggested != 2 for issue in label_issues(probabilities, np.array([0, 0, 1])))
