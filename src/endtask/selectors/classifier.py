"""A linear classifier that tells the task's texts from random retrieved ones; what it takes for the task's is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import read_batches
from endtask.progress import bar
from endtask.selectors.base import Candidates, Order, Ranking, RunContext, Selector, selectors
from endtask.selectors.hashing import (
    WordKeys,
    column_keys,
    draws,
    example_texts,
    ngrams,
    table_draws,
    table_rows,
    word_keys,
)
from endtask.selectors.ranking import by_score, ranks_of

FEATURES = 1 << 18
_MOST_TEXTS = 10_000
"""Of each side; more hardly change a linear classifier."""
_INVERSE_PENALTY = 10.0

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Linear:
    """Weights over hashed n-grams and a bias: the log odds that a text is one of the task's."""

    weights: NDArray[np.float64]
    bias: float

    def log_odds(self, rows: Any) -> NDArray[np.float64]:
        """One figure for each row of `features`."""
        odds: NDArray[np.float64] = rows @ self.weights + self.bias
        return odds


@selectors.register("classifier")
class Classifier(Selector):
    """most like the task's texts to a linear classifier"""

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by log odds; each passage is scored by the one of two classifiers that did not train on it.

        Passages are divided into two halves by their ids. Otherwise those that happen to be negative examples would
        rank lower for that alone.
        """
        numbers = table_draws(run.table, run.seed, "classifier")
        half = (numbers & np.uint64(1)).astype(bool)
        task = _some(example_texts(run.examples), run.seed)
        others = [word_keys(_texts_at(run.table, _lowest(numbers, half == side))) for side in (False, True)]
        classifiers = [fit(task, others[1 - side]) for side in (0, 1)]
        score = _scores(run.table, half, classifiers)
        order = by_score(score, candidates)
        rank = ranks_of(order)

        def reasons(indices: Order) -> list[str]:
            rows = zip(score[indices].tolist(), rank[indices].tolist(), strict=True)
            return [f"classifier: log odds {value:+.2f} to be the task's, rank {place}" for value, place in rows]

        return Ranking(order, score, reasons)


def fit(task: WordKeys, others: WordKeys) -> Linear:
    """A logistic regression with both sides of equal weight; without texts on a side it has nothing to say."""
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression

    if not len(task) or not len(others):
        return Linear(np.zeros(FEATURES), 0.0)
    is_task = np.repeat([True, False], [len(task), len(others)])
    model = LogisticRegression(C=_INVERSE_PENALTY, class_weight="balanced", max_iter=1000)
    model.fit(vstack([features(task), features(others)]), is_task)
    return Linear(model.coef_[0].astype(np.float64), float(model.intercept_[0]))


def features(words: WordKeys) -> Any:
    """A sparse row per text: how often each bucket of n-grams is hit, scaled to length 1, so that none shouts."""
    from scipy.sparse import csr_matrix, diags

    buckets, owners = ngrams(words, FEATURES)
    counts = csr_matrix((np.ones(len(buckets)), (owners, buckets)), shape=(len(words), FEATURES))
    counts.sum_duplicates()
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    return (diags(1.0 / np.maximum(lengths, 1e-12)) @ counts).tocsr()


def _some(texts: list[str], seed: int) -> WordKeys:
    """The task's texts, or a draw from very many, in an order of their own."""
    places = _lowest(draws(texts, seed, "classifier"), np.ones(len(texts), dtype=bool))
    return word_keys([texts[place] for place in places.tolist()])


def _lowest(numbers: NDArray[np.uint64], allowed: Mask) -> Order:
    """The places, among those allowed, of the lowest numbers, lowest first."""
    places = np.flatnonzero(allowed)
    return places[np.argsort(numbers[places], kind="stable")[:_MOST_TEXTS]]


def _texts_at(table: Path, places: Order) -> list[str]:
    wanted = np.zeros(table_rows(table), dtype=bool)
    wanted[places] = True
    texts = [text for batch in read_batches(table, wanted, ["text"]) for text in batch.column(0).to_pylist()]
    by_place = dict(zip(np.flatnonzero(wanted).tolist(), texts, strict=True))
    return [by_place[place] for place in places.tolist()]


def _scores(table: Path, half: Mask, classifiers: list[Linear]) -> NDArray[np.float64]:
    score = np.zeros(len(half))
    start = 0
    with bar("classifying what was retrieved", len(half)) as advance:
        for batch in read_batches(table, columns=["text"]):
            rows = features(column_keys(batch.column(0)))
            here = slice(start, start + len(batch))
            score[here] = np.where(half[here], classifiers[1].log_odds(rows), classifiers[0].log_odds(rows))
            start += len(batch)
            advance(len(batch))
    return score
