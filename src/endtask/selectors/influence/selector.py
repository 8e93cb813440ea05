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
    "evaluate.metric",
    "evaluate.positive_label",
)
"""The settings that the scoring model depends on."""
_READ_BY_LIMIT = ("budget", "pretrain.batch_size", "pretrain.gradient_accumulation_steps")
"""The settings that a limit on the cost of scoring depends on."""
_READ_BY_FIRST_ROUND = tuple(
    f"pretrain.{key}"
    for key in (
        "learning_rate",
        "weight_decay",
        "warmup_steps",
        "lr_scheduler_type",
        "batch_size",
        "gradient_accumulation_steps",
        "mask_probability",
        "dropout",
    )
)
"""The settings of pre-training that the first of two rounds takes over."""


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
        """Return the settings that the scoring model and the limit on its cost depend on."""
        of_limit = _READ_BY_LIMIT if self.config.share_of_budget is not None else ()
        of_round = _READ_BY_FIRST_ROUND if self.config.first_round_steps else ()
        of_seed = ("pretrain.seed",) if self.config.scoring_seed == "pretrain" else ()
        return tuple(dict.fromkeys((*_READ, *of_limit, *of_round, *of_seed)))

    def inputs_read(self) -> tuple[str, ...]:
        """Return the inputs of the scoring model."""
        return ("tokenizer", "checkpoint")

    def external_path(self) -> str | None:
        """Return the checkpoint of the scoring models, if they have one of their own."""
        return self.config.model

    def external_digest(self) -> str:
        """Return a hash of that checkpoint and its tokenizer."""
        from endtask.selectors.nearest_neighbors import embedding_fingerprint

        assert self.config.model is not None
        return embedding_fingerprint(self.config.model)

    def data_usage(self) -> DataUse:
        """Return the labels that decide which texts help."""
        folds = "train, each half validated by a model of the other"
        return selection_use("which texts help", folds if self.config.targets == "folds" else "train, validated by dev")

    def preflight(self, task: Task | None, settings: Settings, *, has_corpus: bool) -> None:
        """Raise `InputError` for train rows that cannot be split, and for layers that the scoring model lacks."""
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
        """Rank by how much a gradient step on a candidate's masked-LM loss lowers the task's loss, to first order."""
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

        def reasons(indices: Order) -> list[str]:
            return [
                f"influence: rank {rank[index]}, most helpful for {names[table.column[index]]}"
                if table.is_scored[index]
                else "influence: not scored, beyond select.share_of_budget"
                for index in indices.tolist()
            ]

        score = np.where(table.is_scored, table.score, np.nanmin(table.score))
        return Ranking(order, score, reasons, {"influence": scored.counts})


class _Table:
    """The scores of candidates: each has the score of its unit."""

    def __init__(self, scored: Scored, statistics: SelectionStatistics) -> None:
        self.shards, self.columns, self.labels = scored.shards, scored.columns, scored.labels
        self.statistics, self.units = statistics, scored.shards.units
        self.is_scored = np.zeros(len(statistics.rank), dtype=bool)
        self.is_scored[self.units.order] = True
        self.score = self.spread(self.shards.gathered("score").astype(np.float64), np.nan)
        self.column = self.spread(self.shards.gathered("column"), 0)

    def spread(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Return for each candidate the value of its unit, `missing` if it was not scored."""
        spread = np.full((len(self.statistics.rank), *values.shape[1:]), missing, dtype=values.dtype)
        spread[self.units.order] = values[self.units.of_each]
        return spread

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
    """Sort by falling score; candidates without a score (NaN) come last, by BM25 rank."""
    return by_score(np.where(np.isnan(score), -np.inf, score), statistics)


def by_best_rank(ranks: NDArray[np.int64], score: Scores, statistics: SelectionStatistics) -> Order:
    """Sort by the best rank that any target gives: ISS's union is the first k ranks of all targets together.

    The budget decides how large k becomes. Candidates that were not scored (rank 0) come last, by BM25 rank.
    """
    is_scored = ranks > 0
    best = np.where(is_scored, ranks, np.iinfo(ranks.dtype).max)
    tie_breaks = (np.arange(len(ranks)), -statistics.score, statistics.rank, np.where(is_scored, -score, 0.0))
    return np.lexsort((*tie_breaks, best))


def best_ranks(scores: Iterable[NDArray[np.float32]], columns: int, units: int) -> NDArray[np.int64]:
    """Return the best rank, from 1, that any column gives each unit; of equal scores the earlier unit ranks first.

    `scores` yields consecutive rows of the table (units, columns).
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
