"""A fitted linear model over TF-IDF as arrays, which can be stored and applied without scikit-learn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = r"(?u)\w+|[^\w\s]+"
"""Punctuation counts as words: in relation tasks the words next to an entity marker, as in `]] inhibits`, say most."""
Floats = NDArray[np.float32]


def words_and_pairs(text: str) -> Iterable[str]:
    """Return all words in lower case and all pairs of neighbors.

    >>> list(words_and_pairs("A cat, a dog"))
    ['a', 'cat', ',', 'a', 'dog', 'a cat', 'cat ,', ', a', 'a dog']
    """
    words = re.findall(WORD, text.lower())
    return chain(words, map(" ".join, pairwise(words)))


@dataclass(frozen=True)
class LinearTextModel:
    """Outputs of a text: its TF-IDF vector, of length 1, times the coefficients, plus the intercepts."""

    terms: tuple[str, ...]
    idf: Floats
    coefficients: Floats
    """(terms, outputs)"""
    intercepts: Floats

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {term: number for number, term in enumerate(self.terms)}

    @classmethod
    def of(cls, vectorizer: Any, fitted: Any) -> LinearTextModel:
        """Return the model of a fitted `TfidfVectorizer` and a linear model of scikit-learn behind it."""
        terms = tuple(vectorizer.get_feature_names_out().tolist())
        rows, intercepts = _rows_of(fitted, len(terms))
        return cls(
            terms,
            vectorizer.idf_.astype(np.float32),
            np.ascontiguousarray(rows.T, dtype=np.float32),
            intercepts.astype(np.float32),
        )

    def outputs(self, texts: Sequence[str]) -> Floats:
        """Return (texts, outputs): logits of classes or labels, or a number."""
        return np.array([self._output(text) for text in texts], dtype=np.float32).reshape(-1, len(self.intercepts))

    def _output(self, text: str) -> Floats:
        counts = Counter(number for term in words_and_pairs(text) if (number := self._numbers.get(term)) is not None)
        known = np.fromiter(counts, dtype=np.int64, count=len(counts))
        values = (1 + np.log(np.fromiter(counts.values(), dtype=np.float64, count=len(counts)))) * self.idf[known]
        length = np.sqrt((values**2).sum()) or 1.0
        output: Floats = ((values / length) @ self.coefficients[known] + self.intercepts).astype(np.float32)
        return output


def _rows_of(fitted: Any, terms: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return coefficients (outputs, terms) and intercepts: two rows for two classes, a row for each label."""
    if hasattr(fitted, "estimators_"):
        parts = [_rows_of_label(estimator, terms) for estimator in fitted.estimators_]
        return np.stack([row for row, _ in parts]), np.array([intercept for _, intercept in parts])
    rows, intercepts = np.atleast_2d(fitted.coef_), np.atleast_1d(fitted.intercept_)
    if len(getattr(fitted, "classes_", ())) == 2:
        return np.concatenate([-rows / 2, rows / 2]), np.concatenate([-intercepts / 2, intercepts / 2])
    return rows, intercepts


_NEVER = 30.0
"""Logit of a label that all train rows have, or none."""


def _rows_of_label(estimator: Any, terms: int) -> tuple[NDArray[Any], float]:
    if hasattr(estimator, "coef_"):
        return estimator.coef_[0], float(estimator.intercept_[0])
    return np.zeros(terms), _NEVER if estimator.y_[0] else -_NEVER
