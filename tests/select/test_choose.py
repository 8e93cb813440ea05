"""The select stage keeps the best passages up to exactly the budget, each with an answer to "why"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.files.selection_table import SelectionFigures, read_selection, write_selection
from endtask.records import Document, Selected
from endtask.select.best_rank import best_rank
from endtask.select.choose import SELECTION, fill, select
from endtask.settings import SelectSettings, SizeBudget

SIZES = st.lists(st.integers(1, 50), max_size=12)


def longest_fitting(sizes: list[int], limit: float) -> int:
    """Add passages one by one until one does not fit."""
    total = count = 0
    for size in sizes:
        total += size
        if total > limit:
            break
        count += 1
    return count


@given(SIZES, st.integers(1, 300), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_bytes_fill_to_the_last_passage_that_fits(sizes: list[int], limit: int, random: object) -> None:
    order = np.asarray(sorted(range(len(sizes)), key=lambda _: random.random()), dtype=np.int64)  # type: ignore[attr-defined]
    kept = fill(order, np.asarray(sizes, dtype=np.int64), SizeBudget.parse(f"{limit}B"), corpus_bytes=sum(sizes))
    count = longest_fitting([sizes[place] for place in order], limit)
    assert kept.tolist() == order[:count].tolist()


@given(SIZES, st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_a_share_is_of_the_whole_corpus(sizes: list[int], percent: int) -> None:
    corpus_bytes = 2 * sum(sizes)  # half of it was not retrieved
    order = np.arange(len(sizes))
    budget = SizeBudget.parse(f"{percent}%")
    kept = fill(order, np.asarray(sizes, dtype=np.int64), budget, corpus_bytes=corpus_bytes)
    assert len(kept) == longest_fitting([100 * size for size in sizes], percent * corpus_bytes)


@given(SIZES, st.integers(1, 15))
@settings(max_examples=50, deadline=None)
def test_passages_are_counted(sizes: list[int], amount: int) -> None:
    order = np.arange(len(sizes))[::-1]
    kept = fill(order, np.asarray(sizes), SizeBudget.parse(f"{amount}passages"), corpus_bytes=sum(sizes))
    assert kept.tolist() == order[:amount].tolist()


def test_no_budget_keeps_all_in_order() -> None:
    order = np.asarray([2, 0, 1])
    assert fill(order, np.asarray([5, 5, 5]), None, corpus_bytes=15).tolist() == [2, 0, 1]


def test_a_share_that_floats_cannot_hold_still_fits_exactly() -> None:
    assert 0.29 * 100 < 29
    kept = fill(np.arange(2), np.asarray([29, 1]), SizeBudget.parse("29%"), corpus_bytes=100)
    assert kept.tolist() == [0]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0.5, 1.5, 2.0])), max_size=20))
@settings(max_examples=100, deadline=None)
def test_best_rank_orders_by_rank_then_score_then_place(rows: list[tuple[int, float]]) -> None:
    figures = SelectionFigures(
        np.asarray([rank for rank, _ in rows], dtype=np.int64),
        np.asarray([score for _, score in rows], dtype=np.float64),
        np.ones(len(rows), dtype=np.int64),
    )
    expected = sorted(range(len(rows)), key=lambda place: (rows[place][0], -rows[place][1], place))
    assert best_rank(figures).tolist() == expected


def passage(place: int, rank: int, score: float, text: str = "0123456789") -> Selected:
    askers = tuple(f"asker-{place}-{number}" for number in range(2))
    return Selected(Document(f"d{place}", text, "s"), place * 10, rank, score, 2, askers, "retrieved")


@pytest.fixture
def retrieved(tmp_path: Path) -> Path:
    path = tmp_path / "retrieved.parquet"
    write_selection(path, [passage(0, 2, 9.0), passage(1, 1, 1.0), passage(2, 1, 3.0, "ééééé"), passage(3, 1, 3.0)])
    return path


def run_select(retrieved: Path, corpus_bytes: int = 80, **values: object) -> tuple[dict[str, object], list[Selected]]:
    counts = select(retrieved, SelectSettings.model_validate(values), retrieved.parent, corpus_bytes=corpus_bytes)
    return counts, list(read_selection(retrieved.parent / SELECTION))


def test_the_best_are_kept_in_corpus_order_with_reasons(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, budget="25%")
    assert counts == {"passages": 2, "bytes": 20, "share_of_corpus": 0.25}
    assert [item.document.id for item in kept] == ["d2", "d3"]
    assert [item.reason for item in kept] == ["best_rank: rank 1 for asker-2-0", "best_rank: rank 1 for asker-3-0"]
    assert all(item.reason.endswith(f"for {item.asked_by[0]}") for item in kept)
    assert kept[0].position == 20


def test_everything_else_of_a_kept_passage_is_untouched(retrieved: Path) -> None:
    before = {item.document.id: item for item in read_selection(retrieved)}
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
        assert (item.asked_count, item.asked_by) == (old.asked_count, old.asked_by)


def test_bytes_are_counted_in_utf8(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, budget="10B")
    assert [item.document.text for item in kept] == ["ééééé"]
    assert counts["bytes"] == 10


def test_selector_none_keeps_nothing(retrieved: Path) -> None:
    counts, kept = run_select(retrieved, selector="none")
    assert counts == {"passages": 0, "bytes": 0, "share_of_corpus": 0.0}
    assert kept == []


@pytest.mark.parametrize("budget", ["9B", "10%", "0.5passages"])
def test_a_budget_under_one_passage_is_refused(retrieved: Path, budget: str) -> None:
    with pytest.raises(InputError, match=r"key 'select.budget': no passage was kept") as caught:
        run_select(retrieved, budget=budget)
    assert "\n" not in str(caught.value)
    assert not (retrieved.parent / SELECTION).exists()


def test_nothing_retrieved_from_a_corpus_is_refused(tmp_path: Path) -> None:
    write_selection(tmp_path / "retrieved.parquet", [])
    with pytest.raises(InputError, match="shares no word with the task"):
        run_select(tmp_path / "retrieved.parquet", budget=None)


def test_nothing_retrieved_without_a_corpus_is_fine(tmp_path: Path) -> None:
    write_selection(tmp_path / "retrieved.parquet", [])
    counts, kept = run_select(tmp_path / "retrieved.parquet", corpus_bytes=0)
    assert (counts["passages"], counts["share_of_corpus"], kept) == (0, 0.0, [])
