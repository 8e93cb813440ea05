"""From outputs to answers of each task type, perplexity, thresholds, and the simple baselines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, log_loss

from endtask.config import EvaluateSettings
from endtask.evaluation.baselines import Baseline, majority_baseline, tfidf_baseline
from endtask.evaluation.outputs import answers_of, best_threshold, perplexity
from endtask.evaluation.task_metrics import Measure, measure_of
from endtask.records import Example
from endtask.task import Task
from endtask.task.targets import targets
from endtask.task_types.token_classification import default_tag


def task_of(kind: Any, train: list[Any], test: list[Any]) -> Task:
    """Labels, or for tags (words, tags)."""

    def rows(name: str, given: list[Any]) -> list[Example]:
        if kind == "token_classification":
            return [
                Example(f"{name}-{n}", " ".join(words), tags, tokens=words) for n, (words, tags) in enumerate(given)
            ]
        return [Example(f"{name}-{n}", f"{name} {n} {label}", label) for n, label in enumerate(given)]

    splits = {"train": rows("train", train), "dev": rows("dev", train), "test": rows("test", test)}
    return Task.from_examples("any", splits, task_type=kind)


def test_scores_return_to_the_scale_of_the_task() -> None:
    task = task_of("regression", [1.0, 3.0], [1.0, 2.0])
    outputs = np.array([[-1.0], [0.5]], dtype=np.float32)
    assert answers_of(task, "test", outputs).tolist() == [1.0, 2.5]
    assert perplexity(task, "test", outputs) is None


def test_labels_above_the_threshold_and_none_that_train_has_not() -> None:
    task = task_of("multilabel", [("a",), ("b",)], [("a", "z"), ()])
    outputs = np.array([[0.6, 0.2], [0.4, 0.5]], dtype=np.float32)
    assert answers_of(task, "test", outputs).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert answers_of(task, "test", outputs, threshold=0.15).tolist() == [[1, 1, 0], [1, 1, 0]]


def test_the_best_threshold_by_trying_all() -> None:
    random = np.random.default_rng(0)
    labels = [tuple(name for name in "abc" if random.random() < 0.3) for _ in range(40)]
    task = task_of("multilabel", labels, labels)
    outputs = (0.3 * targets(task, "dev") + 0.4 * random.random((40, 3))).astype(np.float32)
    found = best_threshold(task, "dev", outputs, Measure("micro_f1", "multilabel", task.all_labels))
    scores = {
        each / 100: f1_score(targets(task, "dev"), outputs >= each / 100, average="micro", zero_division=0)
        for each in range(5, 100, 5)
    }
    assert scores[found] == max(scores.values())
    assert found != 0.5


def test_words_without_a_token_are_outside() -> None:
    train = [(("in", "Rome"), ("O", "B-x")), (("Rome", "Rome"), ("B-x", "B-x"))]
    task = task_of("token_classification", train, [(("a",), ("B-x",)), (("b", "c"), ("O", "Z"))])
    outputs = np.array([[0.7, 0.3], [0.0, 0.0], [0.4, 0.6]], dtype=np.float32)
    assert task.all_labels == ("B-x", "O", "Z")
    assert answers_of(task, "test", outputs).tolist() == [[0, -1], [1, 1]]
    assert perplexity(task, "test", outputs) == pytest.approx(1 / 0.7), "unknown tags and unseen words do not count"
    assert default_tag(task) == "O", "though B-x is more frequent"
    assert default_tag(task_of("token_classification", [(("a", "b"), ("N", "V")), (("c",), ("V",))], train)) == "V"


def test_perplexity_of_classes_is_scikit_learns_loss() -> None:
    task = task_of("text", ["a", "b", "c"], ["a", "c", "b", "b"])
    random = np.random.default_rng(0)
    outputs = random.dirichlet([1, 1, 1], 4).astype(np.float32)
    expected = np.exp(log_loss(targets(task, "test"), outputs, labels=[0, 1, 2]))
    assert perplexity(task, "test", outputs) == pytest.approx(expected, rel=1e-5)
    certain = np.eye(3, dtype=np.float32)[[1, 1, 1, 1]]
    assert np.isfinite(perplexity(task, "test", certain))  # type: ignore[arg-type]


def learnable(kind: str) -> Task:
    """Answers that follow from the words."""
    if kind == "token_classification":
        words = [("see", f"the{n % 3}", "Rome", "now") for n in range(30)]
        return task_of(
            "token_classification",
            [(each, ("O", "O", "B-x", "O")) for each in words],
            [(words[0], ("O", "O", "B-x", "O"))] * 4,
        )
    if kind == "multilabel":
        sets = [("a",), ("b",), ("a", "b"), ()]
        return task_of("multilabel", sets * 10, sets)
    return task_of("regression", [1.5, 2.5, 4.0] * 10, [1.5, 4.0, 2.5])


@pytest.mark.parametrize("kind", ["regression", "multilabel", "token_classification"])
def test_a_linear_model_learns_what_words_tell(kind: str) -> None:
    task = learnable(kind)
    measure = measure_of(task, EvaluateSettings())
    found = tfidf_baseline(task, measure)
    assert found.predicted.shape == targets(task, "test").shape
    assert found.dev_score > 0.9
    assert measure.score(targets(task, "test"), found.predicted) > 0.9


def test_the_commonest_answers() -> None:
    def found(kind: str) -> Baseline:
        task = learnable(kind)
        return majority_baseline(task, measure_of(task, EvaluateSettings()))

    assert found("regression").predicted.tolist() == pytest.approx([8 / 3] * 3)
    assert found("regression").dev_score == 0.0, "answers that are all alike say nothing"
    assert found("token_classification").predicted.tolist() == [[1, 1, 0, 1]] * 4, "a word's own commonest tag"
    assert found("multilabel").description == "commonest labels (none)"
    assert found("multilabel").predicted.tolist() == [[0, 0]] * 4
