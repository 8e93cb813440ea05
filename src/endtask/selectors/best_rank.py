"""Select what BM25 ranks best over all examples (TLM)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from endtask.io.selection_table import Batch, read_statistics
from endtask.selectors.base import (
    NO_COMMON_WORD,
    Candidates,
    Order,
    Ranking,
    RunContext,
    Selected,
    Selector,
    by_bm25_rank,
    selectors,
    with_matched_query,
    write_rows,
)


@selectors.register("best_rank")
class BestRank(Selector):
    """the best BM25 rank over all examples (TLM)"""

    requires_corpus = False  # a run without a corpus selects nothing with this selector
    is_plain_rank = True

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates by BM25 rank."""

        def reasons(indices: Order) -> list[str]:
            return [f"best_rank: rank {rank}" for rank in candidates.rank[indices].tolist()]

        return Ranking(by_bm25_rank(candidates), candidates.score, reasons)

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the best-ranked passages; none without a corpus."""
        candidates = read_statistics(run.table)
        if not run.corpus_bytes:
            return Selected(write_rows(run.table, np.zeros(0, dtype=np.int64), path), 0, {})
        selected = run.fill_budget(by_bm25_rank(candidates), candidates.bytes, cause=NO_COMMON_WORD)

        def reason(batch: Batch, indices: Order) -> Any:
            return with_matched_query(["best_rank: rank "] * len(indices), batch)

        return Selected(write_rows(run.table, selected, path, reason), int(candidates.bytes[selected].sum()), {})
