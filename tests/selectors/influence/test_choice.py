"""From scores to an order: exact budgets, quotas, ranks and unions, against slow versions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from endtask.config import SizeBudget
from endtask.io.selection_table import SelectionStatistics
from endtask.selectors.base import fill
from endtask.selectors.influence.selector import best_ranks, by_best_rank, by_best_scores

SIZES = st.integers(1, 30)


def figures_of(sizes: list[int]) -> SelectionStatistics:
    count = len(sizes)
    return SelectionStatistics(np.arange(count) % 5 + 1, -np.arange(count, dtype=np.float64), np.asarray(sizes))


@given(
    rows=st.lists(st.tuples(SIZES, st.integers(-3, 3), st.booleans()), min_size=1, max_size=30),
    share=st.floats(0.01, 1),
)
def test_the_budget_is_filled_from_the_best_to_the_passage(rows: list[tuple[int, int, bool]], share: float) -> None:
    statistics = figures_of([size for size, _, _ in rows])
    score = np.asarray([float(value) if scored else np.nan for _, value, scored in rows])
    order = by_best_scores(score, statistics)
    assert sorted(order.tolist()) == list(range(len(rows)))
    found = score[order]
    scored = int((~np.isnan(score)).sum())
    assert not np.isnan(found[:scored]).any()
    assert (np.diff(found[:scored]) <= 0).all()
    allowed = max(1, int(share * statistics.bytes.sum()))
    kept = fill(order, statistics.bytes, SizeBudget(allowed, "bytes", ""), corpus_bytes=0)
    assert statistics.bytes[kept].sum() <= allowed
    if len(kept) < len(rows):
        assert statistics.bytes[order[: len(kept) + 1]].sum() > allowed


TABLES = st.integers(1, 12).flatmap(
    lambda columns: st.lists(st.lists(st.integers(-4, 4), min_size=columns, max_size=columns), min_size=1, max_size=15)
)


def slow_best_ranks(table: NDArray[np.float32]) -> list[int]:
    ranks = [np.argsort(np.argsort(-column, kind="stable"), kind="stable") + 1 for column in table.T]
    return [int(min(rank[unit] for rank in ranks)) for unit in range(len(table))]


@given(rows=TABLES, cut=st.integers(0, 15), top_k=st.integers(1, 15))
def test_the_first_ranks_of_all_targets_are_the_papers_union(rows: list[list[int]], cut: int, top_k: int) -> None:
    table = np.asarray(rows, dtype=np.float32)
    ranks = best_ranks([table[:cut], table[cut:]], table.shape[1], len(table))
    assert ranks.tolist() == slow_best_ranks(table)
    chosen = by_best_rank(ranks, table.max(axis=1).astype(np.float64), figures_of([1] * len(table)))
    union = {int(unit) for column in table.T for unit in np.argsort(-column, kind="stable")[:top_k]}
    assert set(chosen[: len(union)].tolist()) == union


def test_of_equal_ranks_the_higher_score_is_first_and_what_was_not_scored_last() -> None:
    chosen = by_best_rank(np.asarray([3, 1, 0, 1]), np.asarray([0.0, 1.0, np.nan, 2.0]), figures_of([1] * 4))
    assert chosen.tolist() == [3, 1, 0, 2]
