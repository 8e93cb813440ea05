"""Deal the budget to the classes in turn, so that no class goes without text because another one asks better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.errors import InputError
from endtask.io.selection_table import Batch, SelectionStatistics
from endtask.selectors.base import Order

NOBODY = -1


@dataclass(frozen=True)
class Dealt:
    """The order in which passages are dealt, and for each candidate the class that takes it, or `NOBODY`."""

    order: Order
    taker: NDArray[np.int64]
    class_ranks: NDArray[np.int32]
    labels: tuple[str, ...]

    def reason(self, batch: Batch, indices: Order) -> Any:
        """One reason for each passage of a batch: the class that took it and the rank it had there."""
        import pyarrow as arrow

        takers = self.taker[indices].tolist()
        ranks = self.class_ranks[indices, self.taker[indices]].tolist()
        reasons = [
            "best_rank: asked for by unlabelled texts only"
            if taker == NOBODY
            else f"best_rank: rank {rank} for class {self.labels[taker]}"
            for taker, rank in zip(takers, ranks, strict=True)
        ]
        return arrow.array(reasons, arrow.string())


def deal(candidates: SelectionStatistics, labels: tuple[str, ...]) -> Dealt:
    """Class after class takes, of what is left, the passage that its own examples ranked best.

    Ties go to the higher score, then to the earlier passage. A class whose passages are gone is passed over; what only
    unlabelled texts asked for comes last.

    >>> ranks = np.array([[1, 2], [2, 1], [3, 0]], dtype=np.int32)
    >>> statistics = SelectionStatistics(np.array([1, 1, 3]), np.array([9.0, 8.0, 7.0]), np.array([5, 5, 5]), ranks)
    >>> deal(statistics, ("no", "yes")).order.tolist()
    [0, 1, 2]
    """
    class_ranks = _checked(candidates, labels)
    queues = [_queue(class_ranks[:, number], candidates.score) for number in range(len(labels))]
    taker = np.full(len(candidates.rank), NOBODY, dtype=np.int64)
    order = _draft(queues, taker)
    rest = np.flatnonzero(taker == NOBODY)
    rest = rest[np.lexsort((rest, -candidates.score[rest], candidates.rank[rest]))]
    return Dealt(np.concatenate([order, rest]), taker, class_ranks, labels)


def _checked(candidates: SelectionStatistics, labels: tuple[str, ...]) -> NDArray[np.int32]:
    ranks = candidates.class_ranks
    if ranks is None or (len(ranks) and ranks.shape[1] != len(labels)):
        raise InputError(
            "the passages were retrieved without the ranks of the classes",
            key="select.per_class",
            hint="redo with --from retrieve",
        )
    return ranks.reshape(-1, len(labels))


def _queue(ranks: NDArray[np.int32], score: NDArray[np.float64]) -> list[int]:
    """The places that a class asks for, best first."""
    asked = np.flatnonzero(ranks)
    queue: list[int] = asked[np.lexsort((asked, -score[asked], ranks[asked]))].tolist()
    return queue


def _draft(queues: list[list[int]], taker: NDArray[np.int64]) -> Order:
    """Draw from the queues in turn, each place once; notes in `taker` which queue gave it."""
    order: list[int] = []
    takers: list[int] = taker.tolist()
    running = [(number, iter(queue)) for number, queue in enumerate(queues)]
    while running:
        still = []
        for number, queue in running:
            place = next((place for place in queue if takers[place] == NOBODY), None)
            if place is not None:
                takers[place] = number
                order.append(place)
                still.append((number, queue))
        running = still
    taker[:] = takers
    return np.asarray(order, dtype=np.int64)
