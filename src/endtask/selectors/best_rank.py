"""Select what BM25 ranks best (TLM), over all examples or class by class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from endtask.config import Settings
from endtask.config.data_usage import DataUse, selection_use
from endtask.errors import InputError
from endtask.io.selection_table import Batch, read_statistics
from endtask.selectors.base import PartConfig, Ranking, RunContext, Selected, Selector, check_per_class, selectors
from endtask.selectors.ranking import Candidates, Order, by_bm25_rank, write_rows
from endtask.task import Task

NO_CLASS = -1


@selectors.register("best_rank")
class BestRank(Selector):
    """the best BM25 rank over all examples (TLM)"""

    class Config(PartConfig):
        """Options of `best_rank`."""

        per_class: bool = Field(False, description="divide the budget among the classes, each taking in turn")

    requires_corpus = False  # a run without a corpus selects nothing with this selector
    config: Config

    @property
    def is_plain_rank(self) -> bool:
        """Whether the budget is not divided among the classes."""
        return not self.config.per_class

    def data_usage(self) -> DataUse | None:
        """Return the use of labels where the budget is divided among the classes."""
        return selection_use("which texts are near a class", "train") if self.config.per_class else None

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool, labels: tuple[str, ...]) -> None:
        """Raise `InputError` where the task has no classes to divide the budget among."""
        check_per_class(self.config.per_class, labels)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Return the candidates by BM25 rank."""

        def reasons(indices: Order) -> list[str]:
            return [f"best_rank: rank {rank}" for rank in candidates.rank[indices].tolist()]

        return Ranking(by_bm25_rank(candidates), candidates.score, reasons)

    def select(self, run: RunContext, path: Path) -> Selected:
        """Write the best-ranked passages, over all examples or class by class."""
        candidates = read_statistics(run.table)
        if not run.corpus_bytes:
            return Selected(write_rows(run.table, np.zeros(0, dtype=np.int64), path), 0, {})
        order, reason = by_bm25_rank(candidates), _reason
        if self.config.per_class:
            shared = share_among_classes(candidates, run.labels)
            order, reason = shared.order, shared.reason
        selected = run.fill_budget(order, candidates.bytes, otherwise="the corpus shares no word with the task")
        return Selected(write_rows(run.table, selected, path, reason), int(candidates.bytes[selected].sum()), {})


def _reason(batch: Batch, indices: Order) -> Any:
    import pyarrow as arrow
    import pyarrow.compute as compute

    rank = batch.column("rank").cast(arrow.string())
    matched_query = compute.list_element(batch.column("matched_queries"), 0)
    return compute.binary_join_element_wise("best_rank: rank ", rank, " for ", matched_query, "")


@dataclass(frozen=True)
class SharedOrder:
    """Candidates in the order in which the classes take them, and the class that takes each, or `NO_CLASS`."""

    order: Order
    taken_by: NDArray[np.int64]
    class_ranks: NDArray[np.int32]
    labels: tuple[str, ...]

    def reason(self, batch: Batch, indices: Order) -> Any:
        """Return a reason for each passage of a batch: the class that took it, and its rank there."""
        import pyarrow as arrow

        classes = self.taken_by[indices].tolist()
        ranks = self.class_ranks[indices, self.taken_by[indices]].tolist()
        reasons = [
            "best_rank: matches unlabelled texts only"
            if number == NO_CLASS
            else f"best_rank: rank {rank} for class {self.labels[number]}"
            for number, rank in zip(classes, ranks, strict=True)
        ]
        return arrow.array(reasons, arrow.string())


def share_among_classes(candidates: Candidates, labels: tuple[str, ...]) -> SharedOrder:
    """Let the classes take in turn, each the remaining passage that its own examples ranked best.

    Without turns a class whose examples retrieve better would leave others without text. Ties go to the higher score,
    then to the earlier passage. A class without passages left is skipped; what only unlabelled texts retrieved comes
    last.

    >>> ranks = np.array([[1, 2], [2, 1], [3, 0]], dtype=np.int32)
    >>> candidates = Candidates(np.array([1, 1, 3]), np.array([9.0, 8.0, 7.0]), np.array([5, 5, 5]), ranks)
    >>> share_among_classes(candidates, ("no", "yes")).order.tolist()
    [0, 1, 2]
    """
    class_ranks = _checked_class_ranks(candidates, labels)
    queues = [_queue(class_ranks[:, number], candidates.score) for number in range(len(labels))]
    taken_by = np.full(len(candidates.rank), NO_CLASS, dtype=np.int64)
    order = _take_round_robin(queues, taken_by)
    rest = np.flatnonzero(taken_by == NO_CLASS)
    rest = rest[np.lexsort((rest, -candidates.score[rest], candidates.rank[rest]))]
    return SharedOrder(np.concatenate([order, rest]), taken_by, class_ranks, labels)


def _checked_class_ranks(candidates: Candidates, labels: tuple[str, ...]) -> NDArray[np.int32]:
    ranks = candidates.class_ranks
    if ranks is None or (len(ranks) and ranks.shape[1] != len(labels)):
        raise InputError(
            "the passages were retrieved without the ranks of the classes",
            key="select.per_class",
            hint="redo with --from retrieve",
        )
    return ranks.reshape(-1, len(labels))


def _queue(ranks: NDArray[np.int32], score: NDArray[np.float64]) -> list[int]:
    """Return the indices of the passages that a class retrieved, best first."""
    retrieved = np.flatnonzero(ranks)
    queue: list[int] = retrieved[np.lexsort((retrieved, -score[retrieved], ranks[retrieved]))].tolist()
    return queue


def _take_round_robin(queues: list[list[int]], taken_by: NDArray[np.int64]) -> Order:
    """Return indices taken from the queues in turn, each once; writes to `taken_by` which queue took it."""
    order: list[int] = []
    classes: list[int] = taken_by.tolist()
    running = [(number, iter(queue)) for number, queue in enumerate(queues)]
    while running:
        unfinished = []
        for number, queue in running:
            index = next((index for index in queue if classes[index] == NO_CLASS), None)
            if index is not None:
                classes[index] = number
                order.append(index)
                unfinished.append((number, queue))
        running = unfinished
    taken_by[:] = classes
    return np.asarray(order, dtype=np.int64)
