"""What every selector among the retrieved passages answers, and how a budget is filled from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import Batch, SelectionStatistics, read_statistics
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.inputs import Inputs, Kept, Order
from endtask.selectors.table import keep_rows


@dataclass(frozen=True)
class Ranking:
    """All candidates in an order: `order` holds their places, best first; `score` has one entry per place.

    `reasons` tells of places why they stand where they stand; `counts` go into the manifest.
    """

    order: Order
    score: NDArray[np.float64]
    reasons: Callable[[Order], list[str]]
    counts: dict[str, Any] = field(default_factory=dict)


Ranker = Callable[[Inputs, SelectionStatistics], Ranking]
"""Ranks the table of retrieved passages; its figures are given."""


def keep_best(inputs: Inputs, path: Path, rank: Ranker) -> Kept:
    """Rank what was retrieved and write the best that the budget holds, with the selector's own rank and score."""
    candidates = inputs.retrieved / RETRIEVED
    statistics = read_statistics(candidates)
    ranking = rank(inputs, statistics)
    otherwise = "the corpus shares no word with the task"
    kept = fill_or_raise(ranking.order, statistics.bytes, inputs, otherwise=otherwise)

    def reason(batch: Batch, places: Order) -> Any:
        return _with_matched_query(ranking.reasons(places), batch)

    replaced = {"rank": ranks_of(ranking.order), "score": ranking.score}
    written = keep_rows(candidates, kept, path, reason, replaced)
    return Kept(written, int(statistics.bytes[kept].sum()), ranking.counts)


def ranks_of(order: Order) -> Order:
    """The rank of each place, from 1.

    >>> ranks_of(np.array([2, 0, 1])).tolist()
    [2, 3, 1]
    """
    ranks = np.empty_like(order)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def by_score(score: NDArray[np.float64], statistics: SelectionStatistics) -> Order:
    """The highest score first; of equal ones the better BM25 rank, then the earlier passage."""
    return np.lexsort((np.arange(len(score)), -statistics.score, statistics.rank, -score))


def _with_matched_query(reasons: list[str], batch: Batch) -> Any:
    """Each reason, and how BM25 came upon the passage."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    texts = arrow.array(reasons, arrow.string())
    return compute.binary_join_element_wise(texts, "; BM25 rank ", rank, " for ", matched_query, "")
