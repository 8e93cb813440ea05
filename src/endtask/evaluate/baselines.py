"""What a user would try first: the commonest class, and a bag of words with a linear classifier."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from endtask.evaluate.metrics import METRICS
from endtask.records import Example
from endtask.task import Task

VERSION = 1
"""Raised with every change of what a baseline answers, so that answers kept in files are worked out again."""

_STRENGTHS = (1.0, 10.0, 100.0)

Split = Literal["test", "dev"]

# Signs are words too: what stands beside the mark of an entity, as in `]] inhibits`, says the most in relation tasks.
_WORD = r"(?u)\w+|[^\w\s]+"


@dataclass(frozen=True)
class Baseline:
    """Predicted classes of the rows asked for and of dev, the dev score, and the time taken."""

    predicted: NDArray[np.int64]
    dev_predicted: NDArray[np.int64]
    dev_score: float
    description: str
    seconds: float


def majority_baseline(task: Task, metric: str, *, by: Split = "test") -> Baseline:
    """The commonest class of train for every row; the first in the order of labels where several are.

    Rows are those of test, or of dev if asked for or where there is no test split.

    >>> rows = [Example(str(n), f"text {n}", "rare" if n % 4 == 0 else "usual") for n in range(40)]
    >>> majority_baseline(Task.from_examples("uneven", {"train": rows}), "accuracy").description
    "majority class ('usual')"
    """
    began = time.monotonic()
    counts = Counter(task.label_numbers("train"))
    commonest = min(counts, key=lambda number: (-counts[number], number))
    return _baseline(
        task,
        metric,
        lambda examples: np.full(len(examples), commonest, dtype=np.int64),
        f"majority class ({task.labels[commonest]!r})",
        began,
        by,
    )


def tfidf_baseline(task: Task, metric: str, *, by: Split = "test") -> Baseline:
    """TF-IDF of one and two words or signs with logistic regression; its strength is chosen on dev.

    Rows are those of test, or of dev if asked for or where there is no test split.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    began = time.monotonic()
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=_WORD)
    train, labels = words.fit_transform(_texts(task.train)), task.label_numbers("train")
    dev, truth = words.transform(_texts(task.dev)), task.label_numbers("dev")
    best: tuple[float, float, Any] | None = None
    for strength in _STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=2000).fit(train, labels)
        score = METRICS[metric](truth, model.predict(dev))
        if best is None or score > best[0]:
            best = (score, strength, model)
    assert best is not None
    _, strength, model = best
    return _baseline(
        task,
        metric,
        lambda examples: np.asarray(model.predict(words.transform(_texts(examples))), dtype=np.int64),
        f"TF-IDF + logistic regression (C={strength:g})",
        began,
        by,
    )


def _baseline(
    task: Task,
    metric: str,
    predict: Callable[[tuple[Example, ...]], NDArray[np.int64]],
    description: str,
    began: float,
    by: Split,
) -> Baseline:
    dev = predict(task.dev)
    predicted = predict(task.test) if by == "test" and task.test else dev
    score = METRICS[metric](task.label_numbers("dev"), dev)
    return Baseline(predicted, dev, score, description, time.monotonic() - began)


def _texts(examples: tuple[Example, ...]) -> list[str]:
    return [" ".join(part for part in (example.text, example.text_pair) if part) for example in examples]
