"""Equal and given weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from endtask.weighting.base import Turn
from endtask.weighting.equal import Equal


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_every_objective_runs_at_every_step_and_weights_add_up_to_one(names: tuple[str, ...]) -> None:
    turns = Equal(*names).turns(7)
    assert [turn.objective for turn in turns] == list(names)
    assert {turn.step for turn in turns} == {7}
    assert {turn.weight for turn in turns} == {1 / len(names)}


def test_one_objective_is_plain_training() -> None:
    assert Equal("task").turns(0) == (Turn("task", 1.0, 0),)


def test_given_weights_are_proportions() -> None:
    turns = Equal("a", "b", "c", weights=(6, 3, 1)).turns(2)
    assert [turn.weight for turn in turns] == pytest.approx([0.6, 0.3, 0.1])


def test_an_objective_without_weight_has_no_turn() -> None:
    assert Equal("a", "b", weights=(0, 2)).turns(5) == (Turn("b", 1.0, 5),)


@pytest.mark.parametrize("weights", [(1,), (1, 2, 3), (1, -1), (0, 0)])
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="2 objectives need as many weights, none negative"):
        Equal("a", "b", weights=weights)


@given(st.integers(1, 6), st.integers(1, 7), st.booleans(), st.integers(0, 5))
def test_some_at_a_time_count_on_average_as_all_do_and_read_on_where_they_were(
    others: int, sample: int, with_task: bool, seed: int
) -> None:
    names = [*(["task"] if with_task else []), *(f"aux{number}" for number in range(others))]
    weights = [float(place + 1) for place in range(len(names))]
    rule = Equal(*names, weights=weights, always=["task"], sample=sample, seed=seed)
    rounds = 3 * others
    turns = [rule.turns(step) for step in range(rounds)]
    assert {len(found) for found in turns} == {with_task + min(sample, others)}
    for name, weight in zip(names, weights, strict=True):
        own = [turn for found in turns for turn in found if turn.objective == name]
        assert sum(turn.weight for turn in own) / rounds == pytest.approx(weight / sum(weights))
        assert [turn.step for turn in own] == list(range(len(own)))
    if with_task:
        assert [found[0] for found in turns] == [
            Turn("task", weights[0] / sum(weights), step) for step in range(rounds)
        ]


def test_as_many_as_there_are_is_all_of_them() -> None:
    assert Equal("a", "b", "c", sample=3).turns(4) == Equal("a", "b", "c").turns(4)
