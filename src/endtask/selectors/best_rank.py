"""Select what BM25 ranks best: TLM's own order, made exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from endtask.config import Settings
from endtask.config.data_usage import DataUse, selection_use
from endtask.io.selection_table import Batch, read_statistics
from endtask.selectors.base import (
    Candidates,
    Order,
    PartConfig,
    Ranking,
    RunContext,
    Selected,
    Selector,
    check_per_class,
    selectors,
)
from endtask.selectors.fill_budget import fill_or_raise
from endtask.selectors.per_class import deal
from endtask.selectors.table import keep_rows
from endtask.task import Task


@selectors.register("best_rank")
class BestRank(Selector):
    """the best BM25 rank over all examples (TLM)"""

    class Config(PartConfig):
        """Options of `best_rank`."""

        per_class: bool = Field(False, description="divide the budget among the classes, each taking in turn")

    requires_corpus = False  # without one it selects nothing, which is how a run goes without a corpus
    config: Config

    @property
    def is_plain_rank(self) -> bool:
        """Whether classes do not take in turn."""
        return not self.config.per_class

    def data_usage(self) -> DataUse | None:
        """Return the use of labels where classes take in turn."""
        return selection_use("which texts are near a class", "train") if self.config.per_class else None

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Refuse to divide the budget among no classes."""
        check_per_class(self.config.per_class, labels)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates by BM25 rank."""

        def reasons(indices: Order) -> list[str]:
            return [f"best_rank: rank {rank}" for rank in candidates.rank[indices].tolist()]

        return Ranking(best_rank(candidates), candidates.score, reasons)

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the best-ranked passages, over all examples or class by class."""
        candidates = read_statistics(run.table)
        if not run.corpus_bytes:
            return Selected(keep_rows(run.table, np.zeros(0, dtype=np.int64), path), 0, {})
        order, reason = best_rank(candidates), _reason
        if self.config.per_class:
            dealt = deal(candidates, run.labels)
            order, reason = dealt.order, dealt.reason
        selected = fill_or_raise(order, candidates.bytes, run, otherwise="the corpus shares no word with the task")
        return Selected(keep_rows(run.table, selected, path, reason), int(candidates.bytes[selected].sum()), {})


def best_rank(candidates: Candidates) -> Order:
    """Return the best BM25 rank over all examples first; then the higher score, then the earlier passage."""
    indices = np.arange(len(candidates.rank))
    return np.lexsort((indices, -candidates.score, candidates.rank))


def _reason(batch: Batch, indices: Order) -> Any:
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    return compute.binary_join_element_wise("best_rank: rank ", rank, " for ", matched_query, "")
