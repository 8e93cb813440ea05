"""The selector `influence`: candidates in an order, by what a step on each would do for the task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.io.run_layout import HELPFUL
from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.base import Order, Ranking, RunContext
from endtask.selectors.best_rank import best_rank
from endtask.selectors.influence.config import InfluenceConfig
from endtask.selectors.influence.runner import InfluenceWork, Scored
from endtask.selectors.influence.score_targets import class_lists, merge_lists, write_helpful
from endtask.selectors.per_class import NOBODY, Dealt, deal
from endtask.selectors.ranking import by_score, ranks_of

Scores = NDArray[np.float64]
_COLUMNS_AT_ONCE = 64


def rank_by_influence(statistics: SelectionStatistics, run: RunContext, config: InfluenceConfig) -> Ranking:
    """Rank by how much a step down each candidate's masked-LM loss lowers the task's loss, to first order (ISS)."""
    if not len(statistics.rank):
        return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda places: [])
    work = InfluenceWork(run, statistics, config)
    scored = work.score()
    table = _Table(scored, statistics)
    chosen = _choose(table, work)
    _keep_lists(table, work)
    rank = ranks_of(chosen.order)
    names = [column.name for column in scored.columns]
    dealt = chosen.dealt

    def reason(place: int) -> str:
        if not table.is_scored[place]:
            return "influence: not scored, beyond select.share_of_budget"
        helped = f"influence: rank {rank[place]}, most helpful for {names[table.column[place]]}"
        if dealt is None or dealt.taker[place] == NOBODY:
            return helped
        taker = dealt.taker[place]
        return f"{helped}, number {dealt.class_ranks[place, taker]} for class {dealt.labels[taker]}"

    def reasons(places: Order) -> list[str]:
        return [reason(place) for place in places.tolist()]

    score = np.where(table.is_scored, table.score, np.nanmin(table.score))
    return Ranking(chosen.order, score, reasons, {"influence": scored.counts})


class _Table:
    """The figures of units, spread over the candidates that they are made of."""

    def __init__(self, scored: Scored, statistics: SelectionStatistics) -> None:
        self.shards, self.columns, self.labels, self.statistics = (
            scored.shards,
            scored.columns,
            scored.labels,
            statistics,
        )
        self.units = scored.shards.units
        self.is_scored = np.zeros(len(statistics.rank), dtype=bool)
        self.is_scored[self.units.order] = True
        self.score = self.spread(self.shards.gathered("score").astype(np.float64), np.nan)
        self.column = self.spread(self.shards.gathered("column"), 0)

    def spread(self, values: NDArray[Any], otherwise: float) -> NDArray[Any]:
        """A value of each unit, for each candidate of it."""
        found = np.full((len(self.statistics.rank), *values.shape[1:]), otherwise, dtype=values.dtype)
        found[self.units.order] = values[self.units.of_each]
        return found

    def members(self, unit: int) -> list[int]:
        """The places of a unit's candidates."""
        places: list[int] = self.units.order[unit * self.units.size : (unit + 1) * self.units.size].tolist()
        return places


def _choose(table: _Table, work: InfluenceWork) -> Chosen:
    statistics = table.statistics
    if work.own.per_class:
        return by_class(table.spread(table.shards.gathered("by_class"), np.nan), statistics, table.labels)
    if work.own.choice == "top_k":
        parts = (shard["scores"] for shard in table.shards.read())
        ranks = best_ranks(parts, len(table.columns), table.units.count)  # type: ignore[arg-type]
        return by_best_rank(table.spread(ranks, 0), table.score, statistics)
    return by_best_scores(table.score, statistics)


def _keep_lists(table: _Table, work: InfluenceWork) -> None:
    assert work.inputs.folder is not None
    write_helpful(
        work.inputs.folder / HELPFUL,
        table.columns,
        merge_lists(table.shards.read()),
        table.labels,
        class_lists(table.shards.gathered("by_class")),  # type: ignore[arg-type]
        table.members,
        work.table,
    )


@dataclass(frozen=True)
class Chosen:
    """All candidates in an order, of which the budget takes the front, and the classes that took them in turn."""

    order: Order
    dealt: Dealt | None = None


def by_best_scores(score: Scores, statistics: SelectionStatistics) -> Chosen:
    """The highest score first; what was not scored (NaN) comes last, by BM25's rank."""
    scored = np.flatnonzero(~np.isnan(score))
    order = by_score(score[scored], _some(statistics, scored))
    return Chosen(_with_the_rest(scored[order], statistics))


def by_class(by_class: NDArray[np.float32], statistics: SelectionStatistics, labels: tuple[str, ...]) -> Chosen:
    """Class after class takes, of what is left, what helps it most; `by_class` (candidates, classes) may hold NaN."""
    scored = np.flatnonzero(~np.isnan(by_class).any(axis=1))
    ranks = np.stack([_ranks(by_class[scored, number]) for number in range(len(labels))], axis=1).astype(np.int32)
    few = SelectionStatistics(
        ranks.min(axis=1).astype(np.int64), statistics.score[scored], statistics.bytes[scored], ranks
    )
    dealt = deal(few, labels)
    taker = np.full(len(by_class), -1, dtype=np.int64)
    taker[scored] = dealt.taker
    spread = np.zeros((len(by_class), len(labels)), dtype=np.int32)
    spread[scored] = ranks
    whole = _with_the_rest(scored[dealt.order], statistics)
    return Chosen(whole, dealt=Dealt(whole, taker, spread, labels))


def by_best_rank(ranks: NDArray[np.int64], score: Scores, statistics: SelectionStatistics) -> Chosen:
    """The best rank that any target gives first: the first k ranks of all targets together are ISS's union.

    So the budget decides how far down the ranks go. `ranks` are 0 for what was not scored.
    """
    scored = np.flatnonzero(ranks)
    few = _some(statistics, scored)
    order = scored[np.lexsort((np.arange(len(scored)), -few.score, few.rank, -score[scored], ranks[scored]))]
    return Chosen(_with_the_rest(order, statistics))


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


def _some(statistics: SelectionStatistics, places: Order) -> SelectionStatistics:
    return SelectionStatistics(statistics.rank[places], statistics.score[places], statistics.bytes[places])


def _with_the_rest(order: Order, statistics: SelectionStatistics) -> Order:
    """The order, then all others as BM25 ranks them."""
    others = np.ones(len(statistics.rank), dtype=bool)
    others[order] = False
    everything = best_rank(statistics)
    return np.concatenate([order, everything[others[everything]]])
