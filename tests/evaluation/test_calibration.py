"""The calibration error against a loop over bins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.evaluation.calibration import calibration_error, expected_calibration_error
from endtask.records import Example
from endtask.task import Task

ANSWERS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


def by_loop(answers: list[tuple[float, bool]], bins: int) -> float:
    """The definition: for each bin, its share of the answers times |accuracy - mean confidence|."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [one for one in answers if low < one[0] <= high or (number == 0 and one[0] == 0)]
        if inside:
            confidence = sum(one[0] for one in inside) / len(inside)
            accuracy = sum(one[1] for one in inside) / len(inside)
            total += len(inside) / len(answers) * abs(accuracy - confidence)
    return total


@given(ANSWERS, st.sampled_from([1, 2, 4, 8]))  # powers of 2, whose edges are exact
def test_a_loop_over_bins_gives_the_same(answers: list[tuple[float, bool]], bins: int) -> None:
    confidence, right = np.array([one[0] for one in answers]), np.array([one[1] for one in answers])
    assert expected_calibration_error(confidence, right, bins=bins) == pytest.approx(by_loop(answers, bins))


def task_of(task_type: str, labels: list[object]) -> Task:
    rows = [Example(str(n), f"text {n}", label) for n, label in enumerate(labels)]  # type: ignore[arg-type]
    return Task.from_examples("t", {"train": rows, "dev": rows}, task_type=task_type, test_fraction=0)


def test_what_is_compared_for_each_form_of_answers() -> None:
    classes = task_of("text", ["a", "b", "a", "b"])
    outputs = np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]], dtype=np.float32)
    assert calibration_error(classes, "dev", outputs) == pytest.approx(abs(0.9 - 0.75))
    sets = task_of("multilabel", [("a",), ("a", "b"), ("b",), ("a",)])
    certain = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=np.float32)
    assert calibration_error(sets, "dev", certain) == pytest.approx(1 / 8)  # one label of eight is missing
    assert calibration_error(task_of("regression", [0.5, 1.0, 2.0]), "dev", np.ones((3, 1), np.float32)) is None


def test_truncated_words_do_not_count() -> None:
    rows = [Example(str(n), "x y", ("A", "B"), tokens=("x", "y")) for n in range(2)]
    task = Task.from_examples("t", {"train": rows, "dev": rows}, task_type="token_classification", test_fraction=0)
    outputs = np.array([[1, 0], [0, 1], [1, 0], [0, 0]], dtype=np.float32)
    assert calibration_error(task, "dev", outputs) == 0.0
