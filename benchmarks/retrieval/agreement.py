"""Whether two engines find the same: their scores rank by rank, and the passages they chose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.retrieval.plan import Row

TOLERANCE = 1e-5
"""Relative: passages this near to the last score may be chosen by one engine and not by the other."""


def compare(first: Path, second: Path) -> Row:
    """Compare two samples of rankings of the same queries over the same passages."""
    with np.load(first) as one, np.load(second) as other:
        numbers = [name.removeprefix("scores_") for name in one.files if name.startswith("scores_")]
        pairs = [[_ranking(kept, number) for kept in (one, other)] for number in numbers]
    return {
        "compared_queries": len(pairs),
        "compared_scores": sum(min(len(a[1]), len(b[1])) for a, b in pairs),
        "largest_relative_difference": max(_difference(a[1], b[1]) for a, b in pairs),
        "passages_in_one_only": sum(_strays(a, b) + _strays(b, a) for a, b in pairs),
    }


Ranking = tuple[NDArray[np.int64], NDArray[np.float64]]


def _ranking(kept: np.lib.npyio.NpzFile, number: str) -> Ranking:
    """Passages and scores; those that share no word with the query are left out, as some engines fill up with them."""
    scores = kept[f"scores_{number}"]
    return kept[f"positions_{number}"][scores > 0], scores[scores > 0]


def _difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    count = min(len(first), len(second))
    if count == 0:
        return 0.0
    return float(np.max(np.abs(first[:count] - second[:count]) / second[:count]))


def _strays(ranking: Ranking, other: Ranking) -> int:
    """Passages that the other ranking lacks although they score clearly more than its last one."""
    positions, scores = ranking
    last = other[1].min() if len(other[1]) else 0.0
    clear = scores > last * (1 + TOLERANCE)
    return int(np.sum(clear & ~np.isin(positions, other[0])))
