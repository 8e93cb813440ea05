"""Keep what BM25 ranks best: TLM's own order, made exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import Batch, SelectionStatistics, read_statistics
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.inputs import Inputs, Kept, Order
from endtask.selectors.per_class import deal
from endtask.selectors.table import keep_rows


def select_best_rank(inputs: Inputs, path: Path) -> Kept:
    """Of the retrieved passages keep the best-ranked, over all examples or class by class."""
    candidates = inputs.retrieved / RETRIEVED
    statistics = read_statistics(candidates)
    if not inputs.corpus_bytes:
        return Kept(keep_rows(candidates, np.zeros(0, dtype=np.int64), path), 0, {})
    if inputs.settings.per_class:
        dealt = deal(statistics, inputs.labels)
        order, reason = dealt.order, dealt.reason
    else:
        order, reason = best_rank(statistics), _reason
    kept = fill_or_raise(order, statistics.bytes, inputs, otherwise="the corpus shares no word with the task")
    return Kept(keep_rows(candidates, kept, path, reason), int(statistics.bytes[kept].sum()), {})


def best_rank(candidates: SelectionStatistics) -> Order:
    """Best BM25 rank over all examples first; then the higher score, then the earlier passage."""
    places = np.arange(len(candidates.rank))
    return np.lexsort((places, -candidates.score, candidates.rank))


def _reason(batch: Batch, places: Order) -> Any:
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    return compute.binary_join_element_wise("best_rank: rank ", rank, " for ", matched_query, "")
