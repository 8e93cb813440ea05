"""Alternating objectives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.weighting.alternate import Alternate

NAMES = ("a", "b", "c", "d")


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=4), st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_every_step_has_one_turn_and_each_objective_reads_its_own_in_order(weights: list[float], steps: int) -> None:
    rule = Alternate(*NAMES[: len(weights)], weights=weights)
    seen = dict.fromkeys(NAMES, 0)
    for step in range(steps):
        (turn,) = rule.schedule(step)
        assert turn.weight == 1.0
        assert turn.step == seen[turn.objective]
        seen[turn.objective] += 1
    for name, weight in zip(NAMES, weights, strict=False):
        assert abs(seen[name] - steps * weight / sum(weights)) <= len(weights)


def test_alike_they_go_round() -> None:
    schedule = [Alternate("a", "b", "c").schedule(step)[0].objective for step in range(7)]
    assert "".join(schedule) == "abcabca"


def test_weight_zero_is_left_out() -> None:
    rule = Alternate("a", "b", weights=(0, 1))
    assert {rule.schedule(step)[0].objective for step in range(5)} == {"b"}


@pytest.mark.parametrize("weights", [(1,), (1, -1), (0, 0)])
def test_weights_that_fit_nothing_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="as many weights"):
        Alternate("a", "b", weights=weights)


def test_nothing_to_take_turns_is_refused() -> None:
    with pytest.raises(ValueError, match="0 objectives"):
        Alternate()
