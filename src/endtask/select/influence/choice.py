"""From scores to an order of all candidates, of which the budget takes the front."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from endtask.files.selection_table import SelectionFigures
from endtask.select.best_rank import best_rank
from endtask.select.inputs import Order
from endtask.select.per_class import Dealt, deal
from endtask.select.ranking import by_score

Scores = NDArray[np.float64]
_COLUMNS_AT_ONCE = 64


@dataclass(frozen=True)
class Chosen:
    """All candidates in an order, and how many the rule itself keeps (None: as many as the budget holds)."""

    order: Order
    limit: int | None = None
    dealt: Dealt | None = None


def by_best_scores(score: Scores, figures: SelectionFigures) -> Chosen:
    """The highest score first; what was not scored (NaN) comes last, by BM25's rank."""
    scored = np.flatnonzero(~np.isnan(score))
    order = by_score(score[scored], _some(figures, scored))
    return Chosen(_with_the_rest(scored[order], figures))


def by_class(by_class: NDArray[np.float32], figures: SelectionFigures, labels: tuple[str, ...]) -> Chosen:
    """Class after class takes, of what is left, what helps it most; `by_class` (candidates, classes) may hold NaN."""
    scored = np.flatnonzero(~np.isnan(by_class).any(axis=1))
    ranks = np.stack([_ranks(by_class[scored, number]) for number in range(len(labels))], axis=1).astype(np.int32)
    few = SelectionFigures(ranks.min(axis=1).astype(np.int64), figures.score[scored], figures.bytes[scored], ranks)
    dealt = deal(few, labels)
    taker = np.full(len(by_class), -1, dtype=np.int64)
    taker[scored] = dealt.taker
    spread = np.zeros((len(by_class), len(labels)), dtype=np.int32)
    spread[scored] = ranks
    whole = _with_the_rest(scored[dealt.order], figures)
    return Chosen(whole, dealt=Dealt(whole, taker, spread, labels))


def by_best_rank(ranks: NDArray[np.int64], score: Scores, figures: SelectionFigures, top_k: int | None) -> Chosen:
    """The best rank that any target gives first: the first k ranks of all targets together are ISS's union.

    With `top_k` no more is kept than that union; else the budget decides how far down the ranks go. `ranks` are 0 for
    what was not scored.
    """
    scored = np.flatnonzero(ranks)
    few = _some(figures, scored)
    order = scored[np.lexsort((np.arange(len(scored)), -few.score, few.rank, -score[scored], ranks[scored]))]
    limit = None if top_k is None else int(np.count_nonzero(ranks[scored] <= top_k))
    return Chosen(_with_the_rest(order, figures), limit)


def best_ranks(scores: Iterable[NDArray[np.float32]], columns: int, units: int) -> NDArray[np.int64]:
    """The best rank, from 1, that any column gives each unit; of equal scores the earlier unit is ahead.

    `scores` are parts of rows (units, columns), read once.
    """
    table = np.empty((units, columns), dtype=np.float32)
    filled = 0
    for part in scores:
        table[filled : filled + len(part)] = part
        filled += len(part)
    best = np.full(units, units + 1, dtype=np.int64)
    for first in range(0, columns, _COLUMNS_AT_ONCE):
        order = np.argsort(-table[:, first : first + _COLUMNS_AT_ONCE], axis=0, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, units + 1)[:, None], axis=0)
        np.minimum(best, ranks.min(axis=1), out=best)
    return best


def _ranks(values: NDArray[np.float32]) -> NDArray[np.int64]:
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
    return ranks


def _some(figures: SelectionFigures, places: Order) -> SelectionFigures:
    return SelectionFigures(figures.rank[places], figures.score[places], figures.bytes[places])


def _with_the_rest(order: Order, figures: SelectionFigures) -> Order:
    """The order, then all others as BM25 ranks them."""
    others = np.ones(len(figures.rank), dtype=bool)
    others[order] = False
    everything = best_rank(figures)
    return np.concatenate([order, everything[others[everything]]])
