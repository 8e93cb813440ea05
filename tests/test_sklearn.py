"""The scikit-learn estimators: scikit-learn's own checks, with training replaced, and one run that is real."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from endtask.sklearn import EndtaskClassifier, EndtaskRegressor


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


def words_of_numbers(table: Any) -> list[str]:
    """Rows of numbers as texts, one word for each column and rounded value: scikit-learn's checks bring numbers."""
    return [" ".join(f"c{column}v{value:.0f}" for column, value in enumerate(row)) for row in np.asarray(table)]


class _OnNumbers:
    """Reads a table of numbers as texts, so that scikit-learn runs the checks that need data."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        tags.no_validation = True  # of numbers: NaN and shapes are no matter of texts
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


def expected_failures(estimator: Any) -> dict[str, str]:
    """Checks that fail, each with the reason."""
    return {}


@parametrize_with_checks(
    [NumberClassifier(random_state=0), NumberRegressor(random_state=0)], expected_failed_checks=expected_failures
)
def test_scikit_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)
