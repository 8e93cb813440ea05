"""Several selectors as one: reciprocal rank fusion (Cormack et al. 2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.fill_budget import fill
from endtask.selectors.inputs import Inputs, Order
from endtask.selectors.overlap import overlap
from endtask.selectors.ranking import Ranker, Ranking, by_score, ranks_of

_DAMPING = 60
"""The paper's: how little the very first ranks stand out."""


def rank_by_fusion(inputs: Inputs, statistics: SelectionStatistics, rankers: Mapping[str, Ranker]) -> Ranking:
    """Rank by the sum of 1 / (60 + rank) over the selectors that `select.fuse` names."""
    names: tuple[str, ...] = inputs.settings.fuse
    rankings = {name: rankers[name](inputs, statistics) for name in names}
    orders = {name: ranking.order for name, ranking in rankings.items()}
    ranks = {name: ranks_of(order) for name, order in orders.items()}
    score = fused(list(ranks.values()))

    def reasons(places: Order) -> list[str]:
        rows = np.stack([ranks[name][places] for name in names], axis=1).tolist()
        told = [", ".join(f"{name} {rank}" for name, rank in zip(names, row, strict=True)) for row in rows]
        return [f"fusion: ranks {row}" for row in told]

    counts = {key: value for ranking in rankings.values() for key, value in ranking.counts.items()}
    counts["fused"] = _overlaps(orders, inputs, statistics)
    return Ranking(by_score(score, statistics), score, reasons, counts)


def fused(ranks: Sequence[Order]) -> NDArray[np.float64]:
    """The fused score of each place.

    >>> fused([np.array([1, 2]), np.array([1, 40])]).round(4).tolist()
    [0.0328, 0.0261]
    """
    # From the smallest part up, so that the order in which selectors are named does not change the rounding.
    parts = np.sort(np.stack([1.0 / (_DAMPING + rank) for rank in ranks]), axis=0)
    score: NDArray[np.float64] = parts.sum(axis=0)
    return score


def _overlaps(orders: Mapping[str, Order], inputs: Inputs, statistics: SelectionStatistics) -> dict[str, Any]:
    """How far every two of the selectors agree on what the budget holds."""
    budget, size = inputs.settings.budget, inputs.corpus_bytes
    kept = {name: fill(order, statistics.bytes, budget, corpus_bytes=size) for name, order in orders.items()}
    return {f"{one}, {other}": overlap(kept[one], kept[other]) for one, other in combinations(kept, 2)}
