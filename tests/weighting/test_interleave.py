"""TLM's interleave of corpus and task batches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.weighting.interleave import Interleave


@given(rho1=st.integers(min_value=0, max_value=40), periods=st.integers(min_value=1, max_value=6))
@settings(max_examples=50, deadline=None)
def test_each_objective_reads_its_data_in_order(rho1: int, periods: int) -> None:
    rule = Interleave("corpus", "task", rho1)
    schedule = [turn for step in range(periods * (rho1 + 1)) for turn in rule.schedule(step)]
    for name, count in (("task", periods), ("corpus", periods * rho1)):
        assert [turn.step for turn in schedule if turn.objective == name] == list(range(count))


@given(rho1=st.integers(min_value=0, max_value=40), start=st.integers(min_value=0, max_value=10_000))
@settings(max_examples=50, deadline=None)
def test_any_window_of_a_period_has_one_internal_step(rho1: int, start: int) -> None:
    rule = Interleave("corpus", "task", rho1)
    window = [rule.schedule(step) for step in range(start, start + rho1 + 1)]
    assert all(len(schedule) == 1 and schedule[0].weight == 1.0 for schedule in window)
    assert [schedule[0].objective for schedule in window].count("task") == 1


@pytest.mark.parametrize(("rho1", "letters"), [(0, "tttt"), (1, "ctct"), (3, "ccct")])
def test_external_batches_come_first(rho1: int, letters: str) -> None:
    rule = Interleave("corpus", "task", rho1)
    assert "".join(rule.schedule(step)[0].objective[0] for step in range(4)) == letters


def test_the_turn_of_any_step_is_known_without_those_before() -> None:
    rule = Interleave("corpus", "task", rho1=999)
    assert (rule.schedule(999)[0].objective, rule.schedule(999)[0].step) == ("task", 0)
    assert (rule.schedule(5_000_000)[0].objective, rule.schedule(5_000_000)[0].step) == ("corpus", 4_995_000)
