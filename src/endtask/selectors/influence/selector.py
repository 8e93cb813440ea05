"""The selector `influence`: texts whose gradients agree with the task's (ISS, Wang et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from endtask.config import Settings
from endtask.config.data_usage import DataUse, selection_use
from endtask.io.run_layout import HELPFUL
from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.base import (
    Candidates,
    Order,
    Ranking,
    RunContext,
    SelectionCost,
    Selector,
    by_bm25_rank,
    by_score,
    ranks_of,
    selectors,
)
from endtask.selectors.influence.config import InfluenceConfig
from endtask.task import Task

if TYPE_CHECKING:
    from endtask.selectors.influence.runner import InfluenceRunner, Scored

Scores = NDArray[np.float64]

_COLUMNS_AT_ONCE = 64
_READ = (
    "tokenizer",
    "model",
    "device",
    "threads",
    "precision",
    "compile",
    "pretrain.max_length",
)
"""The settings that the scoring model depends on."""
_READ_BY_LIMIT = ("budget", "pretrain.batch_size", "pretrain.gradient_accumulation_steps")
"""The settings that a limit on the cost of scoring depends on."""


@selectors.register("influence")
class Influence(Selector):
    """gradients that agree with the task's (ISS)"""

    Config = InfluenceConfig
    runs_model = True
    memory_hint = (
        "lower select.size, compare fewer select.layers, or raise select.target_batch; the run then resumes with "
        "--from select"
    )
    config: InfluenceConfig

    def settings_read(self, settings: Settings) -> tuple[str, ...]:
        """Return what fits the scoring model, and what its cost is limited by."""
        return (*_READ, *(_READ_BY_LIMIT if self.config.share_of_budget is not None else ()))

    def inputs_read(self) -> tuple[str, ...]:
        """Return the tokenizer and checkpoint that the scoring model starts from."""
        return ("tokenizer", "checkpoint")

    def data_usage(self) -> DataUse:
        """Return the labels that decide what helps."""
        folds = "train, each half validated by a model of the other"
        return selection_use("which texts help", folds if self.config.targets == "folds" else "train, validated by dev")

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for train rows that cannot be halved, and for layers that the scoring model lacks."""
        super().preflight(task, settings, has_corpus=has_corpus)
        if task is not None:
            from endtask.selectors.influence.scoring_model import check_influence

            check_influence(task, settings)

    def cost(
        self, task: Task, sample: Task, settings: Settings, folder: Path, *, candidates: float, bytes_each: float
    ) -> SelectionCost:
        """Return what fitting the scoring models and scoring the candidates cost."""
        from endtask.selectors.influence.limits import influence_cost

        return influence_cost(task, sample, settings, folder, candidates=candidates, bytes_each=bytes_each)

    def rank(self, candidates: Candidates, run: RunContext) -> Ranking:
        """Rank by how much a step down each candidate's masked-LM loss lowers the task's loss, to first order."""
        from endtask.selectors.influence.runner import InfluenceRunner

        if not len(candidates.rank):
            return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), lambda indices: [])
        runner = InfluenceRunner(run, candidates, self.config)
        scored = runner.score()
        table = _Table(scored, candidates)
        order = _choose(table, runner)
        _write_helpful(table, runner)
        rank = ranks_of(order)
        names = [column.name for column in scored.columns]

        def reason(index: int) -> str:
            if not table.is_scored[index]:
                return "influence: not scored, beyond select.share_of_budget"
            return f"influence: rank {rank[index]}, most helpful for {names[table.column[index]]}"

        def reasons(indices: Order) -> list[str]:
            return [reason(index) for index in indices.tolist()]

        score = np.where(table.is_scored, table.score, np.nanmin(table.score))
        return Ranking(order, score, reasons, {"influence": scored.counts})


class _Table:
    """Scores of units, spread over their candidates."""

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
        """Return the value of its unit for each candidate; `otherwise` for candidates that were not scored."""
        found = np.full((len(self.statistics.rank), *values.shape[1:]), otherwise, dtype=values.dtype)
        found[self.units.order] = values[self.units.of_each]
        return found

    def members(self, unit: int) -> list[int]:
        """Return the indices of a unit's candidates."""
        indices: list[int] = self.units.order[unit * self.units.size : (unit + 1) * self.units.size].tolist()
        return indices


def _choose(table: _Table, runner: InfluenceRunner) -> Order:
    statistics = table.statistics
    if runner.config.choice == "top_k":
        parts = (shard["scores"] for shard in table.shards.read())
        ranks = best_ranks(parts, len(table.columns), table.units.count)  # type: ignore[arg-type]
        return by_best_rank(table.spread(ranks, 0), table.score, statistics)
    return by_best_scores(table.score, statistics)


def _write_helpful(table: _Table, runner: InfluenceRunner) -> None:
    from endtask.selectors.influence.helpful import class_lists, merge_lists, write_helpful

    assert runner.context.folder is not None
    write_helpful(
        runner.context.folder / HELPFUL,
        table.columns,
        merge_lists(table.shards.read()),
        table.labels,
        class_lists(table.shards.gathered("by_class")),  # type: ignore[arg-type]
        table.members,
        runner.table,
    )


def by_best_scores(score: Scores, statistics: SelectionStatistics) -> Order:
    """Return the highest score first; candidates without a score (NaN) come last, by BM25 rank."""
    scored = np.flatnonzero(~np.isnan(score))
    order = by_score(score[scored], _some(statistics, scored))
    return _with_rest(scored[order], statistics)


def by_best_rank(ranks: NDArray[np.int64], score: Scores, statistics: SelectionStatistics) -> Order:
    """Order by the best rank that any target gives: the first k ranks of all targets together are ISS's union.

    The budget decides how far down the ranks go. `ranks` are 0 for candidates that were not scored.
    """
    scored = np.flatnonzero(ranks)
    few = _some(statistics, scored)
    order = scored[np.lexsort((np.arange(len(scored)), -few.score, few.rank, -score[scored], ranks[scored]))]
    return _with_rest(order, statistics)


def best_ranks(scores: Iterable[NDArray[np.float32]], columns: int, units: int) -> NDArray[np.int64]:
    """Return the best rank, from 1, that any column gives each unit; of equal scores the earlier unit ranks first.

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


def _some(statistics: SelectionStatistics, indices: Order) -> SelectionStatistics:
    return SelectionStatistics(statistics.rank[indices], statistics.score[indices], statistics.bytes[indices])


def _with_rest(order: Order, statistics: SelectionStatistics) -> Order:
    """Return the order, followed by all other candidates by BM25 rank."""
    others = np.ones(len(statistics.rank), dtype=bool)
    others[order] = False
    everything = by_bm25_rank(statistics)
    return np.concatenate([order, everything[others[everything]]])
