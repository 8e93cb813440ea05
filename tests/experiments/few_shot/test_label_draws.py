"""Draws: groups stay together, fewer labels are a part of more, every fold is scored once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.errors import InputError
from endtask.experiments.few_shot.few_shot_spec import FewShotSpec
from endtask.experiments.few_shot.label_draws import Draw, TaskRows, fitting_labels, make_draws
from endtask.records import Example
from endtask.task import Task


def make_rows(groups: list[int], *, test: int = 8) -> TaskRows:
    """Train rows with group columns, and dev and test rows, some of which share a group with train."""
    train = [Example(f"r{n}", f"text {n}", "ab"[n % 2], group=str(group)) for n, group in enumerate(groups)]
    others = [Example(f"t{n}", f"other {n}", "ab"[n % 2], group=str(1000 + n)) for n in range(test)]
    task = Task.from_examples("x", {"train": train, "dev": others[: test // 2], "test": others[test // 2 :]})
    return TaskRows.of(task)


@given(
    st.lists(st.integers(0, 12), min_size=12, max_size=60),
    st.integers(1, 10),
    st.integers(0, 5),
    st.sampled_from([None, 3]),
)
@settings(max_examples=60, deadline=None)
def test_no_group_stands_on_two_sides(groups: list[int], labels: int, seed: int, folds: int | None) -> None:
    rows = make_rows(groups)
    for draw in make_draws(rows, FewShotSpec(samples=2, seed=seed, folds=folds)):
        learned, held_out = draw.train(labels), draw.held_out(labels, 4)
        sides = [set(rows.groups[part].tolist()) for part in (learned, held_out, draw.test)]
        assert not sides[0] & sides[1]
        assert not sides[0] & sides[2]
        assert not sides[1] & sides[2]
        assert len(learned) == min(labels, len(draw.order))
        assert len(set(draw.order.tolist())) == len(draw.order)
        assert draw.train(max(1, labels - 1)).tolist() == learned[: max(1, labels - 1)].tolist()


@given(st.lists(st.integers(0, 30), min_size=12, max_size=60), st.integers(2, 4), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_folds_hold_every_row_once(groups: list[int], folds: int, seed: int) -> None:
    rows = make_rows(groups)
    draws = make_draws(rows, FewShotSpec(folds=folds, seed=seed))
    assert np.sort(np.concatenate([draw.test for draw in draws])).tolist() == list(range(len(rows.examples)))
    for draw in draws:
        assert sorted([*draw.order.tolist(), *draw.test.tolist()]) == list(range(len(rows.examples)))


def test_folds_are_about_equal() -> None:
    sizes = [len(draw.test) for draw in make_draws(make_rows(list(range(52))), FewShotSpec(folds=5))]
    assert sizes == [12] * 5


def test_draws_and_seeds_differ_and_repeat() -> None:
    rows = make_rows(list(range(40)))
    first, second = make_draws(rows, FewShotSpec(samples=2))
    assert first.order.tolist() != second.order.tolist()
    assert make_draws(rows, FewShotSpec(samples=3))[1].order.tolist() == second.order.tolist()
    assert make_draws(rows, FewShotSpec(samples=1, seed=1))[0].order.tolist() != first.order.tolist()


def test_train_rows_of_a_scored_group_are_never_learned_from() -> None:
    train = [Example(str(n), f"text {n}", "ab"[n % 2], group=str(n)) for n in range(20)]
    test = [Example(f"t{n}", f"test {n}", "ab"[n % 2], group=str(n)) for n in range(6)]
    dev = [Example(f"d{n}", f"dev {n}", "ab"[n % 2], group=str(n + 5)) for n in range(4)]
    rows = TaskRows.of(Task.from_examples("x", {"train": train, "dev": dev, "test": test}))
    (draw,) = make_draws(rows, FewShotSpec(samples=1))
    assert sorted(draw.order.tolist()) == list(range(6, 20))
    (draw,) = make_draws(rows, FewShotSpec(samples=1, held_out="dev"))
    assert sorted(draw.order.tolist()) == list(range(9, 20))
    assert draw.held_out(5, 0).tolist() == [21, 22, 23]  # the first of dev shares a group with test


def test_the_usual_numbers_of_labels_as_far_as_there_are_rows() -> None:
    draws = make_draws(make_rows(list(range(140))), FewShotSpec(samples=1))
    assert fitting_labels(draws, FewShotSpec(samples=1)) == (50, 100)
    assert fitting_labels(draws, FewShotSpec(samples=1, labels=(112, 7))) == (7, 112)
    with pytest.raises(InputError, match=r"--labels 113 and 28 held-out rows.* 140 rows .*--held-out dev"):
        fitting_labels(draws, FewShotSpec(samples=1, labels=(7, 113)))
    few = make_draws(make_rows(list(range(20))), FewShotSpec(samples=1))
    with pytest.raises(InputError, match="--labels 50"):
        fitting_labels(few, FewShotSpec(samples=1))


def test_a_task_without_enough_groups_or_a_test_split() -> None:
    with pytest.raises(InputError, match="--folds 90: the task has only 20 groups"):
        make_draws(make_rows(list(range(12))), FewShotSpec(folds=90))
    train = [Example(str(n), f"text {n}", "ab"[n % 2]) for n in range(20)]
    task = Task.from_examples("x", {"train": train}, test_fraction=0)
    with pytest.raises(InputError, match="--held-out dev: the task has no test split"):
        make_draws(TaskRows.of(task), FewShotSpec(held_out="dev"))


def test_held_out_rows_come_from_the_end() -> None:
    draw = Draw(np.arange(10), np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]), np.arange(0))
    assert draw.held_out(2, 3).tolist() == [7, 8, 9]
    assert draw.held_out(9, 3).tolist() == []
