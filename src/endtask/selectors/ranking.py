"""How a budget is filled from a ranking of the retrieved passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.selection_table import Batch, read_statistics
from endtask.selectors.base import Candidates, Order, RunContext, Selected, Selector
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.table import keep_rows


def select_best(selector: Selector, run: RunContext, path: Path) -> Selected:
    """Rank what was retrieved and write the best that fit the budget, with the selector's own rank and score."""
    candidates = read_statistics(run.table)
    ranking = selector.rank(candidates, run)
    otherwise = "the corpus shares no word with the task"
    selected = fill_or_raise(ranking.order, candidates.bytes, run, otherwise=otherwise)

    def reason(batch: Batch, indices: Order) -> Any:
        return _with_matched_query(ranking.reasons(indices), batch)

    replaced = {"rank": ranks_of(ranking.order), "score": ranking.score}
    written = keep_rows(run.table, selected, path, reason, replaced)
    return Selected(written, int(candidates.bytes[selected].sum()), ranking.counts)


def ranks_of(order: Order) -> Order:
    """Return the rank of each candidate, from 1.

    >>> ranks_of(np.array([2, 0, 1])).tolist()
    [2, 3, 1]
    """
    ranks = np.empty_like(order)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def by_score(score: NDArray[np.float64], candidates: Candidates) -> Order:
    """Return the highest score first; of equal ones the better BM25 rank, then the earlier passage."""
    return np.lexsort((np.arange(len(score)), -candidates.score, candidates.rank, -score))


def _with_matched_query(reasons: list[str], batch: Batch) -> Any:
    """Return each reason with the BM25 rank and the query that gave it."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    texts = arrow.array(reasons, arrow.string())
    return compute.binary_join_element_wise(texts, "; BM25 rank ", rank, " for ", matched_query, "")
