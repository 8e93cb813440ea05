"""The scikit-learn estimators: scikit-learn's own checks, with training replaced, and one run that is real."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from endtask.sklearn import EndtaskClassifier, EndtaskRegressor, checked_texts, class_names
from tests.toy_run import WORDS, sentence, toy_settings


class BagOfWords:
    """Has the interface of a model, and is trained in a moment."""

    def __init__(self, texts: list[Any], labels: list[Any], *, classifies: bool) -> None:
        joined = [text if isinstance(text, str) else " ".join(text) for text in texts]
        self._words = CountVectorizer(token_pattern=r"\S+")
        self._fitted = (MultinomialNB() if classifies else Ridge(1e-3)).fit(self._words.fit_transform(joined), labels)
        self.classes_ = np.asarray(getattr(self._fitted, "classes_", []), dtype=object)

    def predict(self, texts: list[str]) -> list[Any]:
        return list(self._fitted.predict(self._words.transform(texts)).tolist())

    def predict_proba(self, texts: list[str]) -> Any:
        return self._fitted.predict_proba(self._words.transform(texts))


class QuickClassifier(EndtaskClassifier):
    """The estimator without training."""

    def _fit_model(self, texts: list[Any], labels: Any) -> Any:
        return BagOfWords(texts, labels, classifies=True)


class QuickRegressor(EndtaskRegressor):
    """The estimator without training."""

    def _fit_model(self, texts: list[Any], labels: Any) -> Any:
        return BagOfWords(texts, labels, classifies=False)


def words_of_numbers(table: Any) -> Any:
    """Return rows of numbers as texts, a word for each column and rounded value; what is no table stays as it is."""
    if hasattr(table, "toarray") or np.asarray(table).ndim != 2:
        return table
    return [" ".join(f"c{column}v{value:.0f}" for column, value in enumerate(row)) for row in np.asarray(table)]


class _OnNumbers:
    """Reads a table of numbers as texts, so that scikit-learn runs the checks that need data."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        tags.classifier_tags and setattr(tags.classifier_tags, "poor_score", True)
        tags.regressor_tags and setattr(tags.regressor_tags, "poor_score", True)
        return tags

    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(words_of_numbers(X), y)  # type: ignore[misc]

    def predict(self, X: Any) -> Any:
        return super().predict(words_of_numbers(X))  # type: ignore[misc]


class NumberClassifier(_OnNumbers, QuickClassifier):
    """See `_OnNumbers`."""

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(words_of_numbers(X))


class NumberRegressor(_OnNumbers, QuickRegressor):
    """See `_OnNumbers`."""


NO_COLUMNS = "texts have no numbered features, so none are counted"
EXPECTED_FAILURES = {
    "check_n_features_in": NO_COLUMNS,
    "check_n_features_in_after_fitting": NO_COLUMNS,
    "check_classifiers_train": f"{NO_COLUMNS}, and a text of other columns is a text like any other",
    "check_estimators_empty_data_messages": "a table without columns is texts without words, which the task reports",
    "check_estimators_nan_inf": "NaN in a table of numbers is a word of a text here",
    "check_fit2d_predict1d": "a list of texts is one-dimensional, so no message asks for another shape",
    "check_dtype_object": "cells that are dicts are no texts; the stand-in for texts of this test cannot format them",
}
"""Each with the reason: these are about tables of numbers."""


def expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


@parametrize_with_checks(
    [NumberClassifier(random_state=0), NumberRegressor(random_state=0)], expected_failed_checks=expected_failures
)
def test_scikit_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def labelled() -> tuple[list[str], list[str]]:
    """Texts that a bag of words can tell apart, and their labels."""
    chance = random.Random(0)
    labels = [list(WORDS)[number % 3] for number in range(30)]
    return [f"{sentence(label, 5, chance)} {number}" for number, label in enumerate(labels)], labels


def test_in_a_pipeline_under_cross_validation_and_in_a_grid(labelled: tuple[list[str], list[str]]) -> None:
    texts, labels = labelled
    lower = FunctionTransformer(lambda rows: [row.lower() for row in rows])
    upper = [text.upper() for text in texts]
    scores = cross_val_score(make_pipeline(lower, QuickClassifier()), np.array(upper, dtype=object), labels, cv=3)
    assert scores.tolist() == [1.0, 1.0, 1.0]
    grid = GridSearchCV(QuickClassifier(), {"budget": ["1steps", "2steps"]}, cv=2).fit(pd.Series(texts), labels)
    assert grid.best_estimator_.score(texts, labels) == 1.0


def test_classes_come_back_as_they_were_given(labelled: tuple[list[str], list[str]]) -> None:
    texts, labels = labelled
    for values in ([7, 10, -1], [True, False], [1.0, 2.0], ["b", "a", "c"]):
        target = np.array([values[list(WORDS).index(label) % len(values)] for label in labels])
        found = QuickClassifier().fit(texts, target)
        assert found.classes_.tolist() == sorted(values)
        assert found.predict(texts).dtype == target.dtype
        table = found.predict_proba(texts)
        assert found.classes_[table.argmax(axis=1)].tolist() == found.predict(texts).tolist()
        assert table.sum(axis=1) == pytest.approx(np.ones(len(texts)))


def test_forms_of_texts() -> None:
    pairs = [("a", "b"), ("c", "d")]
    for texts in (pairs, np.array(pairs), pd.DataFrame(pairs), [list(pair) for pair in pairs]):
        assert checked_texts(texts) == pairs
    for texts in (["a", "c"], np.array(["a", "c"]), pd.Series(["a", "c"]), pd.DataFrame({"x": ["a", "c"]})):
        assert checked_texts(texts) == ["a", "c"]


@pytest.mark.parametrize("texts", ["text", {"text": ["a"]}, [], [1.0], [None], [("a", "b", "c")], 3, [["a", 1]]])
def test_what_is_no_list_of_texts(texts: Any) -> None:
    with pytest.raises(ValueError, match=r"text|sample"):
        checked_texts(texts)


def test_blank_and_equal_names_are_numbered() -> None:
    assert class_names(np.array(["", "a"])) == ["class 0", "class 1"]
    assert class_names(np.array(["1", 1], dtype=object)) == ["class 0", "class 1"]
    assert class_names(np.array([0.0, 1.5])) == ["0", "1.5"]


def test_settings_of_the_run(
    monkeypatch: pytest.MonkeyPatch, labelled: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    calls: list[tuple[Any, ...]] = []

    def fit_in(runs: Path, data: Any, corpus: Any, given: dict[str, Any], *, preset: str | None) -> BagOfWords:
        calls.append((runs, corpus, given, preset))
        return BagOfWords(*data, classifies=True)

    monkeypatch.setattr("endtask.sklearn.fit_in", fit_in)
    texts, labels = labelled
    settings = {"finetune": {"epochs": 2}, "task": {"dev_fraction": 0.2}}
    estimator = EndtaskClassifier(["A text."], budget="5steps", settings=settings, output=tmp_path, random_state=7)
    estimator.fit(texts, labels)
    task = {"type": "text", "test_fraction": 0.0, "dev_fraction": 0.2}
    given = {"seed": 7, "task": task, "budget": "5steps", "finetune": {"epochs": 2}}
    assert calls == [(tmp_path, ["A text."], given, None)]
    assert settings == {"finetune": {"epochs": 2}, "task": {"dev_fraction": 0.2}}
    clone(estimator).set_params(output=None, random_state=np.random.RandomState(7)).fit(
        [(text, "b") for text in texts], labels
    )
    folder, _, changed, _ = calls[1]
    assert not folder.exists()  # deleted with the estimator
    assert changed["task"]["type"] == "pair"
    assert changed["seed"] == np.random.RandomState(7).randint(2**31 - 1)


@pytest.mark.slow
def test_a_real_run(labelled: tuple[list[str], list[str]], tmp_path: Path) -> None:
    texts, labels = labelled
    tiny = toy_settings(tmp_path, tmp_path)
    sizes = {key: tiny[key] for key in ("threads", "device", "tokenizer", "model", "pretrain", "finetune")}
    corpus = [f"{text} and more" for text in texts]
    settings = {**sizes, "retrieve": {"top_k": 3}, "select": {"budget": "50%"}}
    estimator = EndtaskClassifier(corpus, budget="4steps", settings=settings, random_state=1).fit(texts, labels)
    probabilities = estimator.predict_proba(texts)
    folder = estimator.model_.folder
    assert estimator.classes_[probabilities.argmax(axis=1)].tolist() == estimator.predict(texts).tolist()
    assert clone(estimator).fit(pd.Series(texts), labels).predict_proba(texts).tolist() == probabilities.tolist()
    assert estimator.model_.settings.seed == 1
    copy = pickle.loads(pickle.dumps(estimator))
    del estimator
    assert not folder.exists()
    assert copy.predict_proba(texts).tolist() == probabilities.tolist()
