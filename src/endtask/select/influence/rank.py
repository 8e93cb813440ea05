"""The selector `influence`: candidates in an order, by what a step on each would do for the task."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from endtask.files.run_layout import HELPFUL
from endtask.files.selection_table import SelectionFigures
from endtask.select.fill import fill
from endtask.select.influence.choice import Chosen, best_ranks, by_best_rank, by_best_scores, by_class
from endtask.select.influence.greedy import match
from endtask.select.influence.helpful import class_lists, merge_lists, write_helpful
from endtask.select.influence.work import InfluenceWork, Scored
from endtask.select.inputs import Inputs, Order
from endtask.select.per_class import NOBODY
from endtask.select.ranking import Ranking, ranks_of


def rank_by_influence(inputs: Inputs, figures: SelectionFigures) -> Ranking:
    """Rank by how much a step down each candidate's masked-LM loss lowers the task's loss, to first order (ISS)."""
    if not len(figures.rank):
        return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda places: [])
    work = InfluenceWork(inputs, figures)
    scored = work.score()
    table = _Table(scored, figures)
    chosen = _choose(table, work)
    _keep_lists(table, work)
    rank = ranks_of(chosen.order)
    names = [column.name for column in scored.columns]
    dealt = chosen.dealt

    def reason(place: int) -> str:
        if not table.is_scored[place]:
            return "influence: not scored, beyond select.influence.share_of_budget"
        helped = f"influence: rank {rank[place]}, most helpful for {names[table.column[place]]}"
        if dealt is None or dealt.taker[place] == NOBODY:
            return helped
        taker = dealt.taker[place]
        return f"{helped}, number {dealt.class_ranks[place, taker]} for class {dealt.labels[taker]}"

    def reasons(places: Order) -> list[str]:
        return [reason(place) for place in places.tolist()]

    score = np.where(table.is_scored, table.score, np.nanmin(table.score))
    return Ranking(chosen.order, score, reasons, {"influence": scored.counts}, chosen.limit)


class _Table:
    """The figures of units, spread over the candidates that they are made of."""

    def __init__(self, scored: Scored, figures: SelectionFigures) -> None:
        self.shards, self.columns, self.labels, self.figures = scored.shards, scored.columns, scored.labels, figures
        self.units, self.class_sketches = scored.shards.units, scored.class_sketches
        self.is_scored = np.zeros(len(figures.rank), dtype=bool)
        self.is_scored[self.units.order] = True
        self.score = self.spread(self.shards.gathered("score").astype(np.float64), np.nan)
        self.column = self.spread(self.shards.gathered("column"), 0)

    def spread(self, values: NDArray[Any], otherwise: float) -> NDArray[Any]:
        """A value of each unit, for each candidate of it."""
        found = np.full((len(self.figures.rank), *values.shape[1:]), otherwise, dtype=values.dtype)
        found[self.units.order] = values[self.units.of_each]
        return found

    def members(self, unit: int) -> list[int]:
        """The places of a unit's candidates."""
        places: list[int] = self.units.order[unit * self.units.size : (unit + 1) * self.units.size].tolist()
        return places


def _choose(table: _Table, work: InfluenceWork) -> Chosen:
    own, figures = work.own, table.figures
    if work.inputs.settings.per_class:
        return by_class(table.spread(table.shards.gathered("by_class"), np.nan), figures, table.labels)
    if own.choice == "top_k":
        parts = (shard["scores"] for shard in table.shards.read())
        ranks = best_ranks(parts, len(table.columns), table.units.count)  # type: ignore[arg-type]
        return by_best_rank(table.spread(ranks, 0), table.score, figures, own.top_k)
    chosen = by_best_scores(table.score, figures)
    return chosen if table.class_sketches is None else Chosen(_matched(table, chosen.order, work))


def _matched(table: _Table, order: Order, work: InfluenceWork) -> Order:
    """What greedy matching picks, until the budget is full, before all others in their order."""
    assert table.class_sketches is not None
    vectors = torch.from_numpy(table.shards.gathered("sketches")).to(table.class_sketches)
    sizes, budget = table.figures.bytes, work.inputs.settings.budget
    # As many units as the budget could hold of the shortest candidates.
    shortest = np.argsort(sizes, kind="stable")
    most = len(fill(shortest, sizes, budget, corpus_bytes=work.inputs.corpus_bytes))
    units = match(vectors, table.class_sketches, min(most, table.units.count))
    first = np.asarray([place for unit in units.tolist() for place in table.members(unit)], dtype=np.int64)
    others = np.ones(len(order), dtype=bool)
    others[first] = False
    return np.concatenate([first, order[others[order]]])


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
