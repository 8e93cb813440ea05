"""Rank by a linear classifier of the task's texts against random retrieved passages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import read_batches
from endtask.progress import bar
from endtask.selectors.base import (
    Candidates,
    Order,
    Ranking,
    RunContext,
    Selector,
    by_score,
    ranks_of,
    selectors,
    values_at,
)
from endtask.selectors.hashing import WordKeys, column_keys, draws, example_texts, ngrams, table_draws, word_keys

FEATURES = 1 << 18
_MOST_TEXTS = 10_000
"""The most texts of each class; more hardly change a linear classifier."""
_INVERSE_PENALTY = 10.0

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Linear:
    """Weights over hashed n-grams and a bias: the log odds that a text belongs to the task."""

    weights: NDArray[np.float64]
    bias: float

    def log_odds(self, rows: Any) -> NDArray[np.float64]:
        """Return the log odds of each row of `features`."""
        odds: NDArray[np.float64] = rows @ self.weights + self.bias
        return odds


@selectors.register("classifier")
class Classifier(Selector):
    """most like the task's texts to a linear classifier"""

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by log odds; each passage is scored by the classifier that did not train on it.

        Hashes of the ids divide the passages into two folds, with a classifier for each. A single classifier would
        rank its own negative examples lower.
        """
        numbers = table_draws(run.table, run.seed, "classifier")
        fold = (numbers & np.uint64(1)).astype(bool)
        task = _task_sample(example_texts(run.examples), run.seed)
        others = [_texts_at(run.table, _lowest(numbers, fold == number)) for number in (False, True)]
        classifiers = [fit(task, word_keys(texts)) for texts in reversed(others)]
        score = _scores(run.table, fold, classifiers)
        order = by_score(score, candidates)
        rank = ranks_of(order)

        def reasons(indices: Order) -> list[str]:
            rows = zip(score[indices].tolist(), rank[indices].tolist(), strict=True)
            return [f"classifier: log odds {value:+.2f} to be the task's, rank {number}" for value, number in rows]

        return Ranking(order, score, reasons)


def fit(task: WordKeys, others: WordKeys) -> Linear:
    """Fit a logistic regression with balanced classes; without texts of a class all log odds are 0."""
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression

    if not len(task) or not len(others):
        return Linear(np.zeros(FEATURES), 0.0)
    is_task = np.repeat([True, False], [len(task), len(others)])
    model = LogisticRegression(C=_INVERSE_PENALTY, class_weight="balanced", max_iter=1000)
    model.fit(vstack([features(task), features(others)]), is_task)
    return Linear(model.coef_[0].astype(np.float64), float(model.intercept_[0]))


def features(words: WordKeys) -> Any:
    """Return a sparse row per text: counts of n-gram buckets, scaled to length 1 so that long texts do not dominate."""
    from scipy.sparse import csr_matrix, diags

    buckets, owners = ngrams(words, FEATURES)
    counts = csr_matrix((np.ones(len(buckets)), (owners, buckets)), shape=(len(words), FEATURES))
    counts.sum_duplicates()
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    return (diags(1.0 / np.maximum(lengths, 1e-12)) @ counts).tocsr()


def _task_sample(texts: list[str], seed: int) -> WordKeys:
    """Return the words of the task's texts, or of a random sample of them."""
    indices = _lowest(draws(texts, seed, "classifier"), np.ones(len(texts), dtype=bool))
    return word_keys([texts[index] for index in indices.tolist()])


def _lowest(numbers: NDArray[np.uint64], allowed: Mask) -> Order:
    """Return the indices of the lowest allowed numbers, lowest first, at most `_MOST_TEXTS`."""
    indices = np.flatnonzero(allowed)
    return indices[np.argsort(numbers[indices], kind="stable")[:_MOST_TEXTS]]


def _texts_at(table: Path, indices: Order) -> list[str]:
    texts = values_at(table, "text", indices)
    return [texts[index] for index in indices.tolist()]


def _scores(table: Path, fold: Mask, classifiers: list[Linear]) -> NDArray[np.float64]:
    score = np.zeros(len(fold))
    start = 0
    with bar("classifying retrieved passages", len(fold)) as advance:
        for batch in read_batches(table, columns=["text"]):
            rows = features(column_keys(batch.column(0)))
            part = slice(start, start + len(batch))
            score[part] = np.where(fold[part], classifiers[1].log_odds(rows), classifiers[0].log_odds(rows))
            start += len(batch)
            advance(len(batch))
    return score
