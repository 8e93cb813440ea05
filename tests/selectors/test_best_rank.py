"""The best-ranked passages are selected up to exactly the budget, each with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.run_layout import RETRIEVED, SELECTION
from endtask.io.selection_table import SelectionStatistics, read_selection
from endtask.selectors.base import by_bm25_rank
from tests.selectors.candidates import passage, run_select, write_retrieved


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.5, 1.5, 2.0])), max_size=20))
@settings(max_examples=25)
def test_best_rank_orders_by_rank_then_score_then_place(rows: list[tuple[int, float]]) -> None:
    statistics = SelectionStatistics(
        np.asarray([rank for rank, _ in rows], dtype=np.int64),
        np.asarray([score for _, score in rows], dtype=np.float64),
        np.ones(len(rows), dtype=np.int64),
    )
    expected = sorted(range(len(rows)), key=lambda place: (rows[place][0], -rows[place][1], place))
    assert by_bm25_rank(statistics).tolist() == expected


@pytest.fixture
def retrieved(tmp_path: Path) -> Path:
    passages = [passage(0, 2, 9.0), passage(1, 1, 1.0), passage(2, 1, 3.0, "ééééé"), passage(3, 1, 3.0)]
    return write_retrieved(tmp_path / "retrieve", passages)


def test_the_best_are_kept_in_corpus_order_with_reasons(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, budget="25%")
    assert counts == {"passages": 2, "bytes": 20, "share_of_corpus": 0.25}
    assert [item.document.id for item in kept] == ["d2", "d3"]
    assert [item.reason for item in kept] == ["best_rank: rank 1 for query-2-0", "best_rank: rank 1 for query-3-0"]
    assert all(item.reason.endswith(f"for {item.matched_queries[0]}") for item in kept)
    assert kept[0].position == 20


def test_everything_else_of_a_kept_passage_is_untouched(retrieved: Path) -> None:
    before = {item.document.id: item for item in read_selection(retrieved / RETRIEVED)}
    _, kept = run_select(retrieved, budget=None)
    assert len(kept) == 4
    for item in kept:
        old = before[item.document.id]
        assert (item.document, item.position, item.rank, item.score) == (
            old.document,
            old.position,
            old.rank,
            old.score,
        )
        assert (item.matched_count, item.matched_queries) == (old.matched_count, old.matched_queries)


def test_bytes_are_counted_in_utf8(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, budget="10B")
    assert [item.document.text for item in kept] == ["ééééé"]
    assert counts["bytes"] == 10


@pytest.mark.parametrize("budget", ["9B", "10%", "0.5passages"])
def test_a_budget_under_one_passage_is_refused(retrieved: Path, budget: str) -> None:
    with pytest.raises(InputError, match=r"key 'select.budget': no passage was selected") as caught:
        run_select(retrieved, budget=budget)
    assert "\n" not in str(caught.value)
    assert not (retrieved / "out" / SELECTION).exists()


def test_nothing_retrieved_from_a_corpus_is_refused(tmp_path: Path) -> None:
    write_retrieved(tmp_path, [])
    with pytest.raises(InputError, match="shares no word with the task"):
        run_select(tmp_path, budget=None)


def test_nothing_retrieved_without_a_corpus_is_fine(tmp_path: Path) -> None:
    write_retrieved(tmp_path, [])
    counts, kept = run_select(tmp_path, corpus_bytes=0)
    assert (counts["passages"], counts["share_of_corpus"], kept) == (0, 0.0, [])
