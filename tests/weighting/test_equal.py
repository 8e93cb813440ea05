"""Equal weights and weights of the user."""

from __future__ import annotations

import pytest

from endtask.weighting.base import ScheduledObjective
from endtask.weighting.equal import Equal, EqualWeighting, WarmedTask


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_every_objective_runs_at_every_step_and_weights_add_up_to_one(names: tuple[str, ...]) -> None:
    schedule = Equal(*names).schedule(7)
    assert [turn.objective for turn in schedule] == list(names)
    assert {turn.step for turn in schedule} == {7}
    assert {turn.weight for turn in schedule} == {1 / len(names)}


def test_one_objective_is_plain_training() -> None:
    assert Equal("task").schedule(0) == (ScheduledObjective("task", 1.0, 0),)


def test_given_weights_are_proportions() -> None:
    schedule = Equal("a", "b", "c", weights=(6, 3, 1)).schedule(2)
    assert [turn.weight for turn in schedule] == pytest.approx([0.6, 0.3, 0.1])


def test_an_objective_without_weight_has_no_turn() -> None:
    assert Equal("a", "b", weights=(0, 2)).schedule(5) == (ScheduledObjective("b", 1.0, 5),)


@pytest.mark.parametrize("weights", [(1,), (1, 2, 3), (1, -1), (0, 0)])
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="2 objectives need as many weights, none negative"):
        Equal("a", "b", weights=weights)


def test_the_weight_of_the_task_grows_from_about_zero() -> None:
    config = EqualWeighting.Config(task_warmup=0.5)
    rule = WarmedTask("mlm", "task", weights=(3, 1), task="task", steps=40, config=config)
    for step in range(40):
        mlm, task = 3.0, min(1.0, (step + 1) / 20)
        weights = {turn.objective: turn.weight for turn in rule.schedule(step)}
        assert weights == pytest.approx({"mlm": mlm / (mlm + task), "task": task / (mlm + task)})
    assert rule.schedule(0)[1].weight < 0.02
