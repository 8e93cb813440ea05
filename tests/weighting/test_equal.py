"""Equal weights."""

from __future__ import annotations

import pytest

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
