"""Baselines: the most frequent class, and a bag of words that learns an easy task and is tuned on dev alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from endtask.evaluation.baselines import Baseline, majority_baseline, tfidf_baseline
from endtask.records import Example
from endtask.task import Task
from tests.evaluation.sklearn_scores import METRICS

FRUIT, METAL = ["apple", "pear", "plum", "cherry"], ["iron", "copper", "silver", "tin"]


def easy_split(name: str, rows: int, *, pairs: bool = False, noise: float = 0.0) -> list[Example]:
    """Texts of three fruits or three metals among filler; in pairs the telling words stand in the second text."""
    random = np.random.default_rng(len(name))
    examples = []
    for row in range(rows):
        label = ("fruit", "metal")[row % 2]
        words = " ".join(random.choice(FRUIT if label == "fruit" else METAL, 3))
        shown = ("metal", "fruit")[row % 2] if random.random() < noise else label
        text = f"sample number {row} of {name}"
        pair = words if pairs else None
        examples.append(Example(f"{name}-{row}", text if pairs else f"{text} {words}", shown, pair))
    return examples


def easy_task(*, pairs: bool = False, test: bool = True, noise: float = 0.0) -> Task:
    splits = {"train": easy_split("train", 40, pairs=pairs, noise=noise), "dev": easy_split("dev", 20, pairs=pairs)}
    if test:
        splits["test"] = easy_split("test", 20, pairs=pairs)
    return Task.from_examples("easy", splits, task_type="pair" if pairs else "text", test_fraction=0.1 if test else 0.0)


def test_it_beats_chance_on_an_easy_task() -> None:
    task = easy_task()
    baseline = tfidf_baseline(task, "accuracy")
    assert METRICS["accuracy"](task.label_numbers("test"), baseline.predicted) > 0.9
    assert baseline.dev_score > 0.9
    assert baseline.description.startswith("TF-IDF + logistic regression (C=")


def test_pairs_are_read_with_their_second_text() -> None:
    task = easy_task(pairs=True)
    baseline = tfidf_baseline(task, "macro_f1")
    assert METRICS["accuracy"](task.label_numbers("test"), baseline.predicted) > 0.9


def test_test_labels_change_nothing() -> None:
    task = easy_task(noise=0.3)
    turned = {"fruit": "metal", "metal": "fruit"}
    wrong = tuple(replace(example, label=turned[str(example.label)]) for example in task.test)
    other = replace(task, splits={**task.splits, "test": wrong})
    first, second = tfidf_baseline(task, "accuracy"), tfidf_baseline(other, "accuracy")
    assert first.description == second.description
    assert first.dev_score == second.dev_score
    assert first.predicted.tolist() == second.predicted.tolist()


def test_the_strength_is_the_one_that_dev_likes_best() -> None:
    task = easy_task(noise=0.3)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]+")
    train = words.fit_transform([example.text for example in task.train])
    dev = words.transform([example.text for example in task.dev])
    scores = {}
    for strength in (1.0, 10.0, 100.0):
        model = LogisticRegression(C=strength, solver="liblinear").fit(train, task.label_numbers("train"))
        scores[strength] = METRICS["accuracy"](task.label_numbers("dev"), model.predict(dev))
    baseline = tfidf_baseline(task, "accuracy")
    assert baseline.dev_score == max(scores.values())
    assert baseline.description.endswith(f"(C={max(scores, key=lambda strength: scores[strength]):g})")


def test_of_several_classes_the_one_with_the_highest_logit_is_the_answer() -> None:
    kinds = {"fruit": "apple pear", "metal": "iron zinc", "tree": "oak elm"}
    noisy = {"fruit": "apple iron", "metal": "zinc oak", "tree": "elm pear"}
    rows = [
        Example(f"{split}-{number}-{kind}", f"{words} of row {number % 5}", kind)
        for number, split in enumerate(["train"] * 20 + ["dev"] * 10 + ["test"] * 10)
        for kind, words in (kinds if number % 3 else noisy).items()
    ]
    splits = {name: [row for row in rows if row.id.startswith(name)] for name in ("train", "dev", "test")}
    task = Task.from_examples("kinds", splits)
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]+")
    train = vectors.fit_transform([example.text for example in task.train])
    truth = np.array(task.label_numbers("train"))
    test = vectors.transform([example.text for example in task.test])
    answers = {}
    for strength in (1, 10, 100):
        models = [LogisticRegression(C=strength, solver="liblinear").fit(train, truth == kind) for kind in range(3)]
        logits = np.stack([model.decision_function(test) for model in models], axis=1)
        answers[f"TF-IDF + logistic regression per class (C={strength})"] = logits.argmax(axis=1).tolist()
    baseline = tfidf_baseline(task, "accuracy")
    assert baseline.predicted.tolist() == answers[baseline.description]


@pytest.mark.parametrize("baseline", [majority_baseline, tfidf_baseline])
def test_dev_is_predicted_too(baseline: Callable[[Task, str], Baseline]) -> None:
    task = easy_task(noise=0.3)
    found = baseline(task, "macro_f1")
    assert METRICS["macro_f1"](task.label_numbers("dev"), found.dev_predicted) == found.dev_score
    assert (len(found.predicted), len(found.dev_predicted)) == (len(task.test), len(task.dev))
    assert found.predicted.dtype == found.dev_predicted.dtype == np.int64
    assert found.seconds >= 0


@pytest.mark.parametrize("baseline", [majority_baseline, tfidf_baseline])
def test_without_a_test_split_dev_is_predicted(baseline: Callable[[Task, str], Baseline]) -> None:
    task = easy_task(test=False)
    assert not task.test
    found = baseline(task, "accuracy")
    assert found.predicted.tolist() == found.dev_predicted.tolist()
    assert len(found.predicted) == len(task.dev)


@pytest.mark.parametrize("baseline", [majority_baseline, tfidf_baseline])
def test_by_dev_no_test_row_is_read(baseline: Callable[..., Baseline]) -> None:
    task = easy_task()
    task = replace(task, splits={**task.splits, "test": (None,) * 7})  # type: ignore[dict-item]
    found = baseline(task, "accuracy", by="dev")
    assert found.predicted.tolist() == found.dev_predicted.tolist()
    with pytest.raises(AttributeError):
        tfidf_baseline(task, "accuracy")


def test_the_majority_is_that_of_train() -> None:
    names = {"train": "bbbac", "dev": "aaaab", "test": "cccba"}
    splits = {
        split: [Example(f"{split}-{row}", f"text {row} of {split}", label) for row, label in enumerate(labels)]
        for split, labels in names.items()
    }
    baseline = majority_baseline(Task.from_examples("letters", splits), "accuracy")
    assert baseline.predicted.tolist() == [1] * 5
    assert baseline.dev_score == 0.2
    assert baseline.description == "majority class ('b')"


def test_of_equal_classes_the_first_is_taken() -> None:
    task = easy_task()
    assert set(task.label_numbers("train")) == {0, 1}
    assert majority_baseline(task, "accuracy").description == "majority class ('fruit')"


def test_what_stands_beside_an_entity_mark_is_seen() -> None:
    words = ["acts", "binds", "cuts", "does"]
    random = np.random.default_rng(0)

    def split(name: str, rows: int) -> list[Example]:
        examples = []
        for row in range(rows):
            order = random.permutation(words)  # every text has all the words; the one after the mark is the class
            text = f"{order[1]} then [[ x{row} ]] {order[0]} then {order[2]} then {order[3]}"
            examples.append(Example(f"{name}-{row}", text, str(order[0])))
        return examples

    task = Task.from_examples(
        "marks", {"train": split("train", 80), "dev": split("dev", 40), "test": split("test", 40)}
    )
    baseline = tfidf_baseline(task, "accuracy")
    assert METRICS["accuracy"](task.label_numbers("test"), baseline.predicted) > 0.9


def test_a_test_split_is_never_seen_by_the_vocabulary() -> None:
    task = easy_task()
    strange = (replace(task.test[0], text="words that nobody met before"), *task.test[1:])
    other = replace(task, splits={**task.splits, "test": strange})
    first, second = tfidf_baseline(task, "accuracy"), tfidf_baseline(other, "accuracy")
    assert first.dev_score == second.dev_score
    assert first.predicted[1:].tolist() == second.predicted[1:].tolist()
