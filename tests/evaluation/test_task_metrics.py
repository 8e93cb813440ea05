"""Metrics of every task type against scikit-learn and SciPy: whole runs, repeated rows, permutations."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn import metrics as sklearn

from endtask.config import EvaluateSettings
from endtask.errors import InputError
from endtask.evaluation.metrics.spans import spans_of
from endtask.evaluation.significance import bootstrap_interval, metric_permutation
from endtask.evaluation.task_metrics import Measure, measure_of, score_runs
from endtask.records import Example
from endtask.registry import task_types
from endtask.task import Task
from endtask.task.targets import Answers, padded, ragged

TAGS = ("B-x", "B-y", "I-x", "I-y", "O")
NAMES = {"text": ("no", "yes"), "regression": (), "multilabel": ("a", "b", "c"), "token_classification": TAGS}


def answers(kind: str, rows: int, random: np.random.Generator) -> Answers:
    if kind == "regression":
        return random.integers(0, 6, rows) / 2  # with ties
    if kind == "multilabel":
        return random.integers(0, 2, (rows, 3))
    if kind == "token_classification":
        return padded([random.integers(0, len(TAGS), 1 + row % 4).tolist() for row in range(rows)])
    return random.integers(0, 2, rows)


def plain_score(measure: Measure, truth: Answers, predicted: Answers) -> float:
    """The obvious way, by other libraries where they have it."""
    name = measure.name
    if measure.type == "token_classification":
        return slow_tag_score(name, ragged(truth), ragged(predicted))
    if measure.type == "multilabel":
        occur = np.flatnonzero((truth + predicted).any(axis=0))
        return {
            "accuracy": lambda: sklearn.accuracy_score(truth, predicted),
            "micro_f1": lambda: sklearn.f1_score(truth, predicted, average="micro", zero_division=0),
            "macro_f1": lambda: (
                sklearn.f1_score(truth, predicted, average="macro", labels=occur, zero_division=0)
                if len(occur)
                else 0.0
            ),
        }[name]()
    if measure.type == "regression":
        return plain_score_of_numbers(name, truth, predicted)
    scores: dict[str, Callable[[], float]] = {
        "f1": lambda: sklearn.f1_score(truth, predicted, pos_label=measure.positive, zero_division=0),
        "matthews": lambda: sklearn.matthews_corrcoef(truth, predicted),
        "accuracy": lambda: sklearn.accuracy_score(truth, predicted),
        "micro_f1": lambda: sklearn.accuracy_score(truth, predicted),
        "macro_f1": lambda: sklearn.f1_score(truth, predicted, average="macro", zero_division=0),
    }
    return (scores["accuracy"]() + scores["f1"]()) / 2 if name == "accuracy_f1" else scores[name]()


def plain_score_of_numbers(name: str, truth: Answers, predicted: Answers) -> float:
    if name == "rmse":
        return float(np.sqrt(np.mean((truth - predicted) ** 2)))
    if len(set(truth)) == 1:
        return 0.0
    if name == "r2":
        return float(sklearn.r2_score(truth, predicted))
    if len(set(predicted)) == 1:
        return 0.0
    pearson, spearman = stats.pearsonr(truth, predicted)[0], stats.spearmanr(truth, predicted)[0]
    return float({"pearson": pearson, "spearman": spearman, "pearson_spearman": (pearson + spearman) / 2}[name])


def slow_tag_score(name: str, truth: list[list[int]], predicted: list[list[int]]) -> float:
    pairs = list(zip(truth, predicted, strict=True))
    if name == "accuracy":
        hits = [a == b for one, other in pairs for a, b in zip(one, other, strict=True)]
        return sum(hits) / len(hits)
    if name == "exact_match":
        return sum(one == other for one, other in pairs) / len(pairs)
    true, given, right = 0, 0, 0
    for one, other in pairs:
        wanted, found = (spans_of([TAGS[number] for number in tags], "bio") for tags in (one, other))
        true, given, right = true + len(wanted), given + len(found), right + sum(span in wanted for span in found)
    if name == "span_precision":
        return right / given if given else 0.0
    if name == "span_recall":
        return right / true if true else 0.0
    return 2 * right / (true + given) if true + given else 0.0


BESIDE = {"regression": ("rmse",), "token_classification": ("span_precision", "span_recall")}
MEASURES = [
    Measure(name, kind, NAMES[kind])  # type: ignore[arg-type]
    for kind in NAMES
    for name in (*task_types.get(kind).preferred_metrics, *BESIDE.get(kind, ()))  # type: ignore[index]
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: f"{measure.type}-{measure.name}")
@given(seed=st.integers(0, 10_000), copies=arrays(np.int64, (7, 3), elements=st.integers(0, 3)))
@settings(max_examples=25, deadline=None)
def test_scores_and_weights_of_rows(measure: Measure, seed: int, copies: Any) -> None:
    random = np.random.default_rng(seed)
    truth = answers(measure.type, 7, random)
    predicted = np.stack([answers(measure.type, 7, random) for _ in range(2)])
    assert score_runs(predicted, truth, measure) == pytest.approx(
        [plain_score(measure, truth, run) for run in predicted], abs=1e-9
    )
    copies[0] += 1
    counted = measure.counted(predicted, truth)
    scores = counted.scores(counted.weighted(copies))
    for draw in range(3):
        rows = np.repeat(np.arange(7), copies[:, draw])
        expected = [plain_score(measure, truth[rows], run[rows]) for run in predicted]
        assert scores[:, draw] == pytest.approx(expected, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["pearson", "spearman", "r2", "micro_f1", "span_f1", "exact_match", "accuracy_f1"])
def test_permutation_by_hand(name: str) -> None:
    measure = next(measure for measure in MEASURES if measure.name == name)
    random = np.random.default_rng(3)
    truth, first, second = (answers(measure.type, 6, random) for _ in range(3))

    def lead(swaps: tuple[bool, ...]) -> float:
        chosen = np.asarray(swaps).reshape(-1, *[1] * (truth.ndim - 1))
        one, other = np.where(chosen, second, first), np.where(chosen, first, second)
        return abs(plain_score(measure, truth, one) - plain_score(measure, truth, other))

    leads = [lead(swaps) for swaps in product((False, True), repeat=6)]
    expected = np.mean([value >= leads[0] - 1e-9 for value in leads])
    assert metric_permutation(first, second, truth, measure) == pytest.approx(expected)


@pytest.mark.parametrize("kind", NAMES)
def test_intervals_hold_the_score_and_groups_count(kind: str) -> None:
    measure = Measure(task_types.get(kind).preferred_metrics[0], kind, NAMES[kind])  # type: ignore[index, arg-type]
    random = np.random.default_rng(0)
    truth = answers(kind, 60, random)
    swapped = random.random((2, 3, 60)) < 0.3
    others = np.stack([[answers(kind, 60, random) for _ in range(3)] for _ in range(2)])
    predicted = np.where(swapped.reshape(2, 3, 60, *[1] * (truth.ndim - 1)), others, truth)
    low, high = bootstrap_interval(predicted, None, truth, measure, samples=300)
    assert low < score_runs(predicted, truth, measure).mean() < high
    low, high = bootstrap_interval(predicted, others, truth, measure, samples=300, paired_runs=True)
    assert 0 < low < high
    assert metric_permutation(predicted, others, truth, measure, permutations=200) < 0.05


def task_of(kind: str, labels: tuple[Any, ...] = ()) -> Task:
    if kind == "token_classification":
        rows = [Example(str(n), f"w{n} v", labels[:2], tokens=(f"w{n}", "v")) for n in range(40)]
    else:
        rows = [Example(str(n), f"text {n}", labels[n % len(labels)] if labels else n / 7) for n in range(40)]
    return Task.from_examples("any", {"train": rows}, task_type=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "usual"),
    [
        (task_of("text", ("a", "b")), "macro_f1"),
        (task_of("regression"), "pearson"),
        (task_of("multilabel", (("a",), ("b", "c"))), "micro_f1"),
        (task_of("token_classification", ("B-x", "O")), "span_f1"),
        (task_of("token_classification", ("NOUN", "VERB")), "accuracy"),
    ],
    ids=["text", "score", "labels", "spans", "tags"],
)
def test_the_usual_metric_of_each_kind(task: Task, usual: str) -> None:
    assert measure_of(task, EvaluateSettings()).name == usual


@pytest.mark.parametrize(
    ("task", "metric", "words"),
    [
        (task_of("regression"), "macro_f1", r"'macro_f1' does not fit numbers \(known: pearson, spearman"),
        (task_of("text", ("a", "b", "c")), "f1", "'f1' does not fit a task of type 'text' with these 3 labels"),
        (task_of("token_classification", ("NOUN", "VERB")), "span_f1", r"known: accuracy, exact_match"),
        (task_of("multilabel", (("a",), ("b",))), "matthews", "does not fit a task of type 'multilabel'"),
    ],
    ids=["score", "three classes", "no spans", "labels"],
)
def test_a_metric_of_another_kind_is_refused(task: Task, metric: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        measure_of(task, EvaluateSettings(metric=metric))


@pytest.mark.parametrize(
    ("labels", "asked", "positive"),
    [
        (("0", "1"), None, "1"),
        (("equivalent", "not_equivalent"), None, "equivalent"),
        (("ham", "spam"), "ham", "ham"),
    ],
)
def test_the_class_that_f1_is_about(labels: tuple[str, ...], asked: str | None, positive: str) -> None:
    measure = measure_of(task_of("text", labels), EvaluateSettings(metric="f1", positive_label=asked))
    assert labels[measure.positive] == positive


def test_an_unknown_positive_class() -> None:
    with pytest.raises(InputError, match=r"key 'evaluate.positive_label': no class 'spma' \(did you mean 'spam'\?\)"):
        measure_of(task_of("text", ("ham", "spam")), EvaluateSettings(positive_label="spma"))


def test_all_scores_of_a_kind() -> None:
    spans = Measure("span_f1", "token_classification", TAGS).all_scores([[0, 2], [4, -1]], [[0, 2], [4, -1]])
    assert spans.keys() == {"span_f1", "accuracy", "exact_match", "span_precision", "span_recall"}
    assert set(spans.values()) == {1.0}
    assert "f1" not in Measure("macro_f1", "text", ("a", "b", "c")).all_scores([0, 1], [0, 1])
