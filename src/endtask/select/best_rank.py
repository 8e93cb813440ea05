"""Keep what BM25 ranks best: TLM's own order, made exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from endtask.files.run_layout import RETRIEVED
from endtask.files.selection_table import Batch, SelectionFigures, read_figures
from endtask.select.fill import fill_or_refuse
from endtask.select.inputs import Inputs, Kept, Order
from endtask.select.per_class import deal
from endtask.select.table import keep_rows


def select_best_rank(inputs: Inputs, path: Path) -> Kept:
    """Of the retrieved passages keep the best-ranked, over all examples or class by class."""
    candidates = inputs.retrieved / RETRIEVED
    figures = read_figures(candidates)
    if not inputs.corpus_bytes:
        return Kept(keep_rows(candidates, np.zeros(0, dtype=np.int64), path), 0, {})
    if inputs.settings.per_class:
        dealt = deal(figures, inputs.labels)
        order, reason = dealt.order, dealt.reason
    else:
        order, reason = best_rank(figures), _reason
    kept = fill_or_refuse(order, figures.bytes, inputs, otherwise="the corpus shares no word with the task")
    return Kept(keep_rows(candidates, kept, path, reason), int(figures.bytes[kept].sum()), {})


def best_rank(candidates: SelectionFigures) -> Order:
    """Best BM25 rank over all examples first; then the higher score, then the earlier passage."""
    places = np.arange(len(candidates.rank))
    return np.lexsort((places, -candidates.score, candidates.rank))


def _reason(batch: Batch, places: Order) -> Any:
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    asker = compute.list_element(batch.column("asked_by"), 0)
    return compute.binary_join_element_wise("best_rank: rank ", rank, " for ", asker, "")
