"""The stored linear model answers as scikit-learn's, and prediction takes it like any model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from endtask.errors import InputError
from endtask.evaluation.linear_text import WORD, LinearTextModel, words_and_pairs
from endtask.serving.linear_model import is_linear, load_linear, save_linear
from endtask.serving.predictor import Predictor

TEXTS = ["A cat sat.", "the dog ran [[ far ]]", "cat and dog ; cat", "no no no!", "Straße und Tür", "a a b"] * 4
CLASSES = {2: [0, 1] * 12, 3: [0, 1, 2] * 8}
UNSEEN = [*TEXTS[:6], "", "???", "cat unknown cat [[ far", "A CAT\nsat. sat. \u00e9"]


def vectorizer() -> TfidfVectorizer:
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=WORD).fit(TEXTS)


@given(st.text(alphabet="aB é[].\n1_\u0130ß", max_size=30))
def test_terms_are_those_of_scikit_learn(text: str) -> None:
    analyze = TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD).build_analyzer()
    assert sorted(words_and_pairs(text)) == sorted(analyze(text))


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_have_the_probabilities_of_scikit_learn(tmp_path: Path, classes: int) -> None:
    words = vectorizer()
    fitted = LogisticRegression(C=10.0, max_iter=2000).fit(words.transform(TEXTS), CLASSES[classes])
    labels = ["yes", "no", "maybe"][:classes]
    save_linear(LinearTextModel.of(words, fitted), labels, "single_label_classification", tmp_path)
    predictor = Predictor(tmp_path)
    expected = fitted.predict_proba(words.transform(UNSEEN))
    found = predictor.predict(UNSEEN)
    assert np.allclose([list(answer.probabilities.values()) for answer in found], expected, atol=1e-5)
    assert [answer.value for answer in found] == [labels[number] for number in expected.argmax(1)]
    pair = predictor.predict([("A cat", "sat.")])[0]
    assert pair.probabilities == predictor.predict(["A cat sat."])[0].probabilities


def test_a_score_is_that_of_scikit_learn(tmp_path: Path) -> None:
    words = vectorizer()
    fitted = Ridge(alpha=0.1).fit(words.transform(TEXTS), np.linspace(-3, 9, len(TEXTS)))
    save_linear(LinearTextModel.of(words, fitted), ["score"], "regression", tmp_path)
    found = [answer.value for answer in Predictor(tmp_path).predict(UNSEEN)]
    assert np.allclose(found, fitted.predict(words.transform(UNSEEN)), atol=1e-4)


def test_labels_are_those_of_scikit_learn_also_where_all_rows_have_one() -> None:
    words, targets = vectorizer(), np.array([[n % 2, 1, 0] for n in range(len(TEXTS))])
    fitted = OneVsRestClassifier(LogisticRegression(C=10.0)).fit(words.transform(TEXTS), targets)
    logits = LinearTextModel.of(words, fitted).outputs(UNSEEN)
    assert np.allclose(1 / (1 + np.exp(-logits)), fitted.predict_proba(words.transform(UNSEEN)), atol=1e-5)


@pytest.mark.parametrize(
    ("file", "content"),
    [("terms.json", ["one"]), ("config.json", {"model_type": "endtask_linear_text", "id2label": {"0": "a"}})],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, file: str, content: Any) -> None:
    words = vectorizer()
    fitted = LogisticRegression().fit(words.transform(TEXTS), CLASSES[2])
    save_linear(LinearTextModel.of(words, fitted), ["yes", "no"], "single_label_classification", tmp_path)
    assert is_linear(tmp_path)
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match="do not fit together"):
        load_linear(tmp_path)
