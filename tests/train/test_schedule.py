"""The learning rate."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.train.schedule import learning_rate_at

FRACTIONS = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)


def rates(steps: int, warmup_fraction: float, peak: float = 1.0) -> list[float]:
    return [learning_rate_at(s, steps=steps, warmup_fraction=warmup_fraction, peak=peak) for s in range(steps)]


@given(
    steps=st.integers(min_value=1, max_value=300),
    warmup_fraction=FRACTIONS,
    peak=st.floats(min_value=1e-6, max_value=1),
)
@settings(max_examples=80, deadline=None)
def test_the_rate_rises_to_its_peak_and_falls_but_never_to_nothing(
    steps: int, warmup_fraction: float, peak: float
) -> None:
    curve = rates(steps, warmup_fraction, peak)
    top = curve.index(max(curve))
    assert max(curve) == pytest.approx(peak)
    assert curve[: top + 1] == sorted(curve[: top + 1])
    assert curve[top:] == sorted(curve[top:], reverse=True)
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in curve)


@given(steps=st.integers(min_value=2, max_value=300), warmup_fraction=FRACTIONS)
@settings(max_examples=50, deadline=None)
def test_both_legs_are_straight(steps: int, warmup_fraction: float) -> None:
    warmup, curve = int(steps * warmup_fraction), rates(steps, warmup_fraction)
    assert curve[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    assert curve[warmup:] == pytest.approx([(steps - step) / (steps - warmup) for step in range(warmup, steps)])


def test_without_warmup_the_first_step_has_the_peak() -> None:
    assert rates(4, 0.0) == [1.0, 0.75, 0.5, 0.25]
