"""An interleave with a changing share of task batches, against step-by-step sums."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.weighting.interleave import AnnealedInterleave, Interleave, MeanInterleave

RHOS = st.integers(min_value=0, max_value=120)
STEPS = st.integers(min_value=1, max_value=300)


def rule_of(rho1: int, rho1_end: int, steps: int) -> AnnealedInterleave:
    return AnnealedInterleave("corpus", "task", rho1, rho1_end, steps)


def shares(rho1: int, rho1_end: int, steps: int) -> list[Fraction]:
    """The internal share of each step: the mean of the straight line inside it."""
    first, last = Fraction(1, rho1 + 1), Fraction(1, rho1_end + 1)
    return [first + (last - first) * Fraction(2 * step + 1, 2 * steps) for step in range(steps)]


@given(rho1=RHOS, rho1_end=RHOS, steps=STEPS)
@settings(max_examples=80, deadline=None)
def test_internal_batches_are_as_many_as_the_shares_add_up_to(rho1: int, rho1_end: int, steps: int) -> None:
    rule, total, internal = rule_of(rho1, rho1_end, steps), Fraction(0), 0
    for step, share in enumerate(shares(rho1, rho1_end, steps)):
        (turn,) = rule.schedule(step)
        total += share
        internal += turn.objective == "task"
        assert internal == total.__floor__()
        assert turn.weight == 1.0


@given(rho1=RHOS, rho1_end=RHOS, steps=STEPS)
@settings(max_examples=50, deadline=None)
def test_each_objective_reads_its_data_in_order(rho1: int, rho1_end: int, steps: int) -> None:
    rule = rule_of(rho1, rho1_end, steps)
    schedule = [turn for step in range(2 * steps) for turn in rule.schedule(step)]
    for name in ("task", "corpus"):
        read = [turn.step for turn in schedule if turn.objective == name]
        assert read == list(range(len(read)))


@given(rho1=RHOS, steps=STEPS, step=st.integers(min_value=0, max_value=10**9))
@settings(max_examples=50, deadline=None)
def test_without_a_change_it_is_the_plain_interleave(rho1: int, steps: int, step: int) -> None:
    assert rule_of(rho1, rho1, steps).schedule(step) == Interleave("corpus", "task", rho1).schedule(step)


@given(rho1=RHOS, rho1_end=RHOS, steps=STEPS)
@settings(max_examples=50, deadline=None)
def test_after_the_last_step_the_last_share_stays(rho1: int, rho1_end: int, steps: int) -> None:
    rule, periods = rule_of(rho1, rho1_end, steps), 5
    after = range(steps, steps + periods * (rho1_end + 1))
    assert [rule.schedule(step)[0].objective for step in after].count("task") == periods


@pytest.mark.parametrize(("rho1", "rho1_end"), [(99, 1), (1, 99)])
def test_the_share_moves_from_the_first_to_the_last(rho1: int, rho1_end: int) -> None:
    rule = rule_of(rho1, rho1_end, 10_000)
    tenths = [rule.task_before(1000 * (tenth + 1)) - rule.task_before(1000 * tenth) for tenth in range(10)]
    first, last = 1 / (rho1 + 1), 1 / (rho1_end + 1)
    expected = [1000 * (first + (last - first) * (tenth + 0.5) / 10) for tenth in range(10)]
    assert tenths == pytest.approx(expected, abs=1.01)


@given(rho1=RHOS, rho1_end=RHOS)
@settings(max_examples=80, deadline=None)
def test_the_mean_has_as_many_internal_batches_in_all(rho1: int, rho1_end: int) -> None:
    steps = 10_000
    mean = MeanInterleave("corpus", "task", rho1, rho1_end).task_before(steps)
    assert abs(mean - rule_of(rho1, rho1_end, steps).task_before(steps)) <= 1
