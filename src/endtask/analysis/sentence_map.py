"""Maps of sentence vectors: t-SNE as in ISS (Figure 4), and how often near texts share their class."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from endtask.encoders.unit_vectors import unit_vectors

NEIGHBOURS = 10
"""Nearest texts whose class is compared."""
_PERPLEXITY = 30.0
_FEWEST_TEXTS = 8

Vectors = NDArray[np.float32]


def sentence_map(vectors: Vectors) -> list[list[float]] | None:
    """Return coordinates on a plane by t-SNE, the same for the same vectors; None for too few different texts.

    One thread: the sums of several would depend on their order. Vectors have length 1 in it, so that near means a high
    cosine.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    unit = unit_vectors(vectors)
    if len(unit) < _FEWEST_TEXTS or float(unit.std(axis=0).max()) < 1e-6:
        return None
    perplexity = min(_PERPLEXITY, (len(unit) - 1) / 3)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of releases whose defaults changed
        placed = TSNE(init="pca", learning_rate="auto", perplexity=perplexity, random_state=0).fit_transform(unit)
    return [[round(float(x), 2), round(float(y), 2)] for x, y in placed]


def same_class_share(vectors: Vectors, classes: Sequence[str]) -> float:
    """Return the share of the nearest texts (by cosine) that have the class of their text, the mean over all texts.

    >>> corners = np.repeat(np.eye(2, dtype=np.float32), 20, axis=0)
    >>> same_class_share(corners, ["left"] * 20 + ["right"] * 20)
    1.0
    """
    unit, names = unit_vectors(vectors), np.asarray(classes)
    similarities = unit @ unit.T
    np.fill_diagonal(similarities, -np.inf)
    nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(unit) - 1)]
    return float((names[nearest] == names[:, None]).mean())


def same_class_by_chance(classes: Sequence[str]) -> float:
    """Return the share of other texts that have the class of a text: what random vectors would give.

    >>> round(same_class_by_chance(["a", "a", "b"]), 3)
    0.333
    """
    rows = len(classes)
    return sum(count * (count - 1) for count in Counter(classes).values()) / (rows * (rows - 1))
