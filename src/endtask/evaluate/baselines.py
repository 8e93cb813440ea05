"""What a user would try first: a bag of words with a linear classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.evaluate.metrics import METRICS
from endtask.records import Example
from endtask.task import Task

_STRENGTHS = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Baseline:
    """Predicted classes of the test split (dev where there is none), and the dev score that chose them."""

    predicted: NDArray[np.int64]
    dev_score: float
    description: str


def tfidf_baseline(task: Task, metric: str) -> Baseline:
    """TF-IDF of one and two words with logistic regression; its strength is chosen on dev."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    train = words.fit_transform(_texts(task.train))
    dev, truth = words.transform(_texts(task.dev)), task.label_numbers("dev")
    best: tuple[float, float, Any] | None = None
    for strength in _STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=2000).fit(train, task.label_numbers("train"))
        score = METRICS[metric](truth, model.predict(dev))
        if best is None or score > best[0]:
            best = (score, strength, model)
    assert best is not None
    score, strength, model = best
    predicted = model.predict(words.transform(_texts(task.test or task.dev)))
    return Baseline(predicted, score, f"TF-IDF + logistic regression (C={strength:g})")


def _texts(examples: tuple[Example, ...]) -> list[str]:
    return [" ".join(part for part in (example.text, example.text_pair) if part) for example in examples]
