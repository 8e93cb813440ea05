"""New splits: whole groups, fair shares, and every class in each split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.records import Example, Label
from endtask.task.split import carve, group_key


def make_labels(kind: str) -> st.SearchStrategy[Label]:
    if kind == "regression":
        return st.floats(0, 5)
    if kind == "token_classification":
        return st.lists(st.sampled_from("OBI"), min_size=1, max_size=3).map(tuple)
    return st.sampled_from("abc")


@st.composite
def examples(draw: Callable[..., object], kind: str = "text") -> list[Example]:
    rows = draw(st.lists(st.tuples(st.integers(0, 30), make_labels(kind), st.booleans()), max_size=60))
    return [
        Example(f"row-{number}", f"[[ Text ]] {text}" if marked else f"text {text}", label)
        for number, (text, label, marked) in enumerate(rows)
    ]


def classes(rows: list[Example]) -> set[str]:
    return {name for row in rows if not isinstance(row.label, float) for name in row.label}


@pytest.mark.parametrize("kind", ["text", "regression", "token_classification"])
@given(data=st.data(), fraction=st.floats(0.01, 0.9), seed=st.integers(0, 3))
def test_carving_keeps_its_promises(kind: str, data: st.DataObject, fraction: float, seed: int) -> None:
    rows = data.draw(examples(kind))
    kept, carved = carve(rows, fraction, seed)
    assert [row for row in rows if row in kept] == kept
    assert sorted(row.id for row in kept + carved) == sorted(row.id for row in rows)
    assert not {group_key(row) for row in kept} & {group_key(row) for row in carved}
    assert classes(kept) == classes(rows)
    assert kept or not rows
    sizes = Counter(group_key(row) for row in rows)
    wanted = max(1, round(fraction * len(rows)))
    assert len(carved) <= max([wanted, *sizes.values()])
    shuffled = data.draw(st.permutations(rows))
    assert {row.id for row in carve(shuffled, fraction, seed)[1]} == {row.id for row in carved}


@given(counts=st.lists(st.integers(10, 60), min_size=2, max_size=4), seed=st.integers(0, 5))
def test_single_rows_are_carved_in_proportion(counts: list[int], seed: int) -> None:
    rows = [
        Example(f"{label}-{number}", f"{label} {number}", str(label))
        for label, count in enumerate(counts)
        for number in range(count)
    ]
    _, carved = carve(rows, 0.2, seed)
    assert len(carved) == round(0.2 * len(rows))
    found = Counter(row.label for row in carved)
    assert all(abs(found[str(label)] - 0.2 * count) <= 1 for label, count in enumerate(counts))


def test_scores_are_carved_over_their_whole_range() -> None:
    rows = [Example(str(number), f"text {number}", number / 20) for number in range(100)]
    _, carved = carve(rows, 0.1, seed=1)
    fifths = Counter(int(row.label) for row in carved if isinstance(row.label, float))
    assert fifths == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}


def test_seed_and_salt_change_what_is_carved() -> None:
    rows = [Example(str(number), f"text {number}", "ab"[number % 2]) for number in range(100)]
    picks = [carve(rows, 0.1, seed, salt=salt)[1] for seed, salt in [(0, "dev"), (1, "dev"), (0, "test")]]
    assert len({tuple(row.id for row in pick) for pick in picks}) == 3


def test_named_groups_stay_together_and_avoided_ones_stay_in_train() -> None:
    rows = [Example(str(number), f"text {number}", "ab"[number % 2], group=str(number // 5)) for number in range(60)]
    avoided = group_key(rows[0])
    for seed in range(10):
        _, carved = carve(rows, 0.25, seed, avoid={avoided})
        assert set(Counter(row.group for row in carved).values()) == {5}
        assert avoided not in {group_key(row) for row in carved}


def test_the_smallest_group_goes_where_none_fits() -> None:
    rows = [Example(str(number), "same" if number < 6 else "other", "ab"[number % 2]) for number in range(10)]
    kept, carved = carve(rows, 0.1, seed=0)
    assert {row.text for row in carved} == {"other"}
    assert {row.text for row in kept} == {"same"}


def test_nothing_is_carved_where_every_class_has_one_row() -> None:
    rows = [Example("1", "x", "a"), Example("2", "y", "b")]
    assert carve(rows, 0.5, seed=0) == (rows, [])
