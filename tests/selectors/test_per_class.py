"""Classes take turns, each its best of what is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.io.run_layout import RETRIEVED
from endtask.io.selection_table import SelectionStatistics, selection_batch, write_batches
from endtask.records import Document
from endtask.selectors.best_rank import share_among_classes
from tests.selectors.candidates import passage, run_select, write_retrieved

LABELS = ("a", "b", "c")
ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 4), min_size=3, max_size=3), st.sampled_from([1.0, 2.0, 3.0])), max_size=25
)


def figures_of(rows: list[tuple[list[int], float]]) -> SelectionStatistics:
    ranks = np.asarray([ranks for ranks, _ in rows], dtype=np.int32).reshape(-1, 3)
    best = [min([rank for rank in ranks if rank], default=7) for ranks, _ in rows]
    scores = np.asarray([score for _, score in rows], dtype=np.float64)
    return SelectionStatistics(np.asarray(best, dtype=np.int64), scores, np.ones(len(rows), dtype=np.int64), ranks)


def dealt_slowly(rows: list[tuple[list[int], float]]) -> list[tuple[int, int]]:
    """(place, class that takes it), by looking through all that is left at every turn."""
    left = set(range(len(rows)))
    order: list[tuple[int, int]] = []
    while any(rows[place][0][number] for place in left for number in range(3)):
        for number in range(3):
            asked = [place for place in left if rows[place][0][number]]
            if asked:
                best = min(asked, key=lambda place: (rows[place][0][number], -rows[place][1], place))
                left.remove(best)
                order.append((best, number))
    statistics = figures_of(rows)
    rest = sorted(left, key=lambda place: (statistics.rank[place], -rows[place][1], place))
    return order + [(place, -1) for place in rest]


@given(ROWS)
@settings(max_examples=200, deadline=None)
def test_against_a_slow_dealer(rows: list[tuple[list[int], float]]) -> None:
    shared = share_among_classes(figures_of(rows), LABELS)
    assert [(place, shared.taken_by[place]) for place in shared.order.tolist()] == dealt_slowly(rows)
    assert sorted(shared.order.tolist()) == list(range(len(rows)))


def write_classes(folder: Path, ranks: list[list[int]], texts: list[str]) -> Path:
    """What was retrieved, with the ranks of the classes; the last class alone asks best for everything."""
    count = len(texts)
    batch = selection_batch(
        [Document(f"d{place}", text, "s") for place, text in enumerate(texts)],
        position=range(count),
        rank=[min([rank for rank in row if rank], default=1) for row in ranks],
        score=np.ones(count),
        matched_count=np.ones(count),
        matched_queries=[(f"e{place}",) for place in range(count)],
        reason=["retrieved"] * count,
        class_ranks=np.asarray(ranks, dtype=np.int32),
    )
    folder.mkdir(exist_ok=True)
    write_batches(folder / RETRIEVED, [batch], class_ranks=True)
    return folder


RANKS = [[0, 1], [0, 1], [0, 1], [9, 0], [8, 2], [0, 0]]


@pytest.mark.parametrize(
    ("budget", "ids"),
    [
        ("20B", ["d0", "d4"]),
        ("29B", ["d0", "d4"]),
        ("4passages", ["d0", "d1", "d3", "d4"]),
        ("100%", ["d0", "d1", "d2", "d3", "d4", "d5"]),
        (None, ["d0", "d1", "d2", "d3", "d4", "d5"]),
    ],
)
def test_the_budget_is_exact(tmp_path: Path, budget: str | None, ids: list[str]) -> None:
    write_classes(tmp_path, RANKS, ["0123456789"] * 6)
    counts, kept = run_select(tmp_path, corpus_bytes=60, budget=budget, per_class=True, labels=("rare", "usual"))
    assert [item.document.id for item in kept] == ids
    assert counts["bytes"] == 10 * len(ids)


def test_reasons_name_class_and_rank(tmp_path: Path) -> None:
    write_classes(tmp_path, RANKS, ["0123456789"] * 6)
    _, kept = run_select(tmp_path, corpus_bytes=60, budget=None, per_class=True, labels=("rare", "usual"))
    reasons = [item.reason.removeprefix("best_rank: ") for item in kept]
    usual = "rank 1 for class usual"
    assert reasons[:3] == [usual, usual, usual]
    assert reasons[3:] == [
        "rank 9 for class rare",
        "rank 8 for class rare",
        "matches unlabelled texts only",
    ]


def test_without_it_the_loudest_class_takes_all(tmp_path: Path) -> None:
    write_classes(tmp_path, RANKS[:5], ["0123456789"] * 5)
    _, kept = run_select(tmp_path, corpus_bytes=50, budget="3passages")
    assert [item.document.id for item in kept] == ["d0", "d1", "d2"]


@pytest.mark.parametrize("labels", [("a", "b"), ("a", "b", "c", "d")])
def test_ranks_of_other_classes_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    write_classes(tmp_path, [[1, 2, 3]], ["0123456789"])
    assert refusal(tmp_path, labels).endswith("(redo with --from retrieve)")


def test_no_ranks_of_classes_are_refused(tmp_path: Path) -> None:
    write_retrieved(tmp_path, [passage(0, 1, 1.0)])
    assert refusal(tmp_path, ("a", "b")).startswith("key 'select.per_class': the passages were retrieved without")


def refusal(folder: Path, labels: tuple[str, ...]) -> str:
    values: dict[str, Any] = {"per_class": True, "labels": labels, "budget": None}
    with pytest.raises(InputError) as caught:
        run_select(folder, **values)
    return str(caught.value)
